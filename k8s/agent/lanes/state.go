// SPDX-License-Identifier: Apache-2.0

// Package lanes keeps the state of one node's lanes: the applied policy, the pods in lanes, and the
// claims that hold units. For every change, it makes one lanes file and lets the applier apply it.
// It accepts the change only if the apply succeeds. Changes that wait at the same time share one
// apply. It writes the state to disk before it answers. Manager is the agent's inventory.Inventory.
package lanes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/policy"
)

// state is everything that the Manager stores. Clones share Spec, and the values in Attachments and
// Holds, so these must not be changed: put replaces them.
type state struct {
	// Policy and Generation identify the LanePolicy from which Spec comes.
	Policy     string
	Generation int64
	Spec       *v1alpha1.LanePolicySpec
	// Attachments are in ascending order of their keys.
	Attachments []*Attachment
	Holds       map[string]inventory.Hold
}

// An Attachment is a pod that is in its lanes, with the packets that belong to them.
type Attachment struct {
	// Sandbox is the runtime's ID of the pod's sandbox. IfName is the name of the pod's interface. For
	// a pod that already ran when it was attached, Sandbox is LatePrefix followed by the UID, and
	// IfName is "".
	Sandbox string `json:"sandbox"`
	IfName  string `json:"ifname,omitempty"`
	// Network is the network configuration that attached the pod, "" if none did.
	Network string `json:"network,omitempty"`
	// HostIf is the name of the host's end of the pod's interface, "" if not known.
	HostIf string `json:"hostIf,omitempty"`

	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`

	// Addrs are the pod's own addresses. A pod in the host's network has none.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// Tunnels are the tunnels in which the pod's packets pass the card ("vxlan:8472").
	Tunnels []string `json:"tunnels,omitempty"`

	Grants  []pods.Grant    `json:"grants"`
	Members []policy.Member `json:"members"`
	// Services are the ways from Kubernetes Services to the pod. Members includes their frontends.
	Services []pods.Service `json:"services,omitempty"`
	// Ceilings has, by lane, the ceiling from the pod's annotation, in bit/s.
	Ceilings map[string]uint64 `json:"ceilings,omitempty"`
	// Holds are the keys of the holds from which Grants come.
	Holds []string `json:"holds,omitempty"`
}

// LatePrefix is the beginning of Sandbox for a pod that the runtime did not report. The agent found
// it when it already ran.
const LatePrefix = "pod:"

// Late reports whether the runtime did not report this pod.
func (a *Attachment) Late() bool { return strings.HasPrefix(a.Sandbox, LatePrefix) }

func (a *Attachment) key() string { return a.Sandbox + " " + a.IfName }

// Name returns NAMESPACE/POD.
func (a *Attachment) Name() string { return a.Namespace + "/" + a.Pod }

func (s *state) clone() *state {
	c := *s
	c.Attachments, c.Holds = slices.Clone(s.Attachments), maps.Clone(s.Holds)
	if c.Holds == nil {
		c.Holds = map[string]inventory.Hold{}
	}
	return &c
}

// put adds an attachment, or replaces the one with the same sandbox and interface.
func (s *state) put(a Attachment) {
	i, again := slices.BinarySearchFunc(s.Attachments, a.key(), func(other *Attachment, key string) int {
		return strings.Compare(other.key(), key)
	})
	if !again {
		s.Attachments = slices.Insert(s.Attachments, i, nil)
	}
	s.Attachments[i] = &a
}

// remove removes the attachments for which the function returns true.
func (s *state) remove(which func(*Attachment) bool) {
	s.Attachments = slices.DeleteFunc(s.Attachments, which)
}

// class returns the class of the applied policy, nil if there is none.
func (s *state) class(name string) *v1alpha1.Class {
	if s.Spec == nil {
		return nil
	}
	i := slices.IndexFunc(s.Spec.Classes, func(c v1alpha1.Class) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Spec.Classes[i]
}

// holders returns, by unit ID, the pod or the claim that has the unit.
func (s *state) holders() map[string]inventory.Holder {
	out := make(map[string]inventory.Holder, len(s.Attachments)+len(s.Holds)) // most holders have one unit
	for _, key := range slices.Sorted(maps.Keys(s.Holds)) {
		for _, u := range s.Holds[key].Units {
			out[u.Unit] = inventory.Holder{Pod: s.Holds[key].Claim}
		}
	}
	for _, a := range s.Attachments {
		for _, g := range a.Grants {
			for _, id := range g.Units {
				out[id] = inventory.Holder{Namespace: a.Namespace, Pod: a.Pod, UID: a.UID, Container: g.Container}
			}
		}
	}
	return out
}

// lanes returns the part of the lanes file that comes from the node and its pods, not from the
// policy.
func (s *state) lanes(device string, link uint64) policy.Node {
	all := s.Attachments
	n := policy.Node{Device: device, Link: link, Ceilings: map[string]uint64{}, Joined: s.joined()}
	fronts := map[string]bool{}
	members := 0
	for i := range all {
		members += len(all[i].Members)
	}
	n.Members = make([]*policy.Member, 0, members)
	for i := range all {
		for j := range all[i].Members {
			m := &all[i].Members[j]
			if strings.HasPrefix(m.Name, pods.FrontendPrefix) {
				front := m.Lane + " " + m.Name
				if fronts[front] {
					continue // another pod behind the same frontend has added it
				}
				fronts[front] = true
			}
			n.Members = append(n.Members, m)
		}
		for _, t := range all[i].Tunnels {
			if !slices.Contains(n.Tunnels, t) {
				n.Tunnels = append(n.Tunnels, t)
			}
		}
		for lane, most := range all[i].Ceilings {
			if now := n.Ceilings[lane]; now == 0 || most < now {
				n.Ceilings[lane] = most
			}
		}
	}
	slices.Sort(n.Tunnels)
	return n
}

// joined returns the lanes that consist of several units of exclusive classes.
func (s *state) joined() (out []policy.Joining) {
	known := map[policy.Joining]bool{}
	for _, a := range s.Attachments {
		for _, g := range a.Grants {
			c := s.class(g.Class)
			if c == nil || policy.IsShared(c) || len(g.Units) < 2 {
				continue
			}
			if j, err := policy.Join(g.Class, g.Units); err == nil && !known[j] {
				known[j] = true
				out = append(out, j)
			}
		}
	}
	return out
}

// overlapping reports whether the two pods have an address in common.
func overlapping(a, b *Attachment) bool {
	return slices.ContainsFunc(a.Addrs, func(x netip.Addr) bool { return slices.Contains(b.Addrs, x) })
}

// frontendTaken returns an error if one of the pod's frontends already leads to another lane. All
// packets for a frontend have the same address at the card, so they can have only one lane.
func (s *state) frontendTaken(a *Attachment) error {
	for _, m := range a.Members {
		if !strings.HasPrefix(m.Name, pods.FrontendPrefix) {
			continue
		}
		for _, other := range s.Attachments {
			for _, o := range other.Members {
				if other.UID == a.UID || !strings.HasPrefix(o.Name, pods.FrontendPrefix) || o.Lane == m.Lane ||
					o.Protocol != m.Protocol ||
					!slices.Equal(o.Addrs, m.Addrs) || !slices.Equal(o.Ports, m.Ports) {
					continue
				}
				return fmt.Errorf("%s port %s of %s leads to lane %s, with pod %s: pods behind one frontend need "+
					"one lane, of a class with mode: Shared",
					m.Protocol, m.Ports[0], m.Addrs[0].Addr(), o.Lane, other.Name())
			}
		}
	}
	return nil
}

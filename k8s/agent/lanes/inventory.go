// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/inventory"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/intent"
)

var _ classes.Inventory = (*Node)(nil)

// publish tells of a new snapshot, if anything has changed.
func (n *Node) publish() {
	n.mu.Lock()
	n.stale = true
	n.renew()
	n.mu.Unlock()
	n.o.Changed()
}

// renew makes a new snapshot, if anything may have changed and has; n.mu is held. It
// goes through all units of all pods, for which a pod that starts does not wait.
func (n *Node) renew() {
	if !n.stale {
		return
	}
	n.stale = false
	next := n.snapshot()
	next.Version = n.version
	if n.snap == nil || !next.Equal(n.snap) {
		n.version++
		next.Version = n.version
		n.snap = next
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// snapshot is made of the state; n.mu is held.
func (n *Node) snapshot() *classes.Snapshot {
	out := &classes.Snapshot{Node: n.o.Name}
	if n.st.Spec == nil {
		return out
	}
	real := map[string]string{}
	var link uint64
	if a := n.applied; a != nil && len(a.Plan.Devices) > 0 {
		if d := a.State.Device(a.Plan.Devices[0]); d != nil {
			link = d.Speed
			out.Device = &classes.Device{Name: d.Name, Driver: d.Driver, PCI: d.Bus, NUMA: d.Node, Speed: d.Speed}
		}
		for _, c := range a.Plan.Choices {
			if part := string(c.Part); c.Realisation != "" && real[part] == "" { // the first device's
				real[part] = c.Realisation
			}
		}
	}
	holders, joined := n.st.holders(), n.st.joined()
	for i := range n.st.Spec.Classes {
		c := &n.st.Spec.Classes[i]
		out.Classes = append(out.Classes, n.class(c, link, real, holders, joined))
	}
	return out
}

func (n *Node) class(c *v1alpha1.Class, link uint64, real map[string]string, holders map[string]classes.Holder, joined []policy.Joining) classes.Class {
	out := classes.Class{
		Name: c.Name, Mode: intent.Exclusive, OfferedAs: policy.Offered(c), Queues: c.Queues, Rank: c.Rank, Poller: c.Poller, Realisations: real,
	}
	if policy.IsShared(c) {
		out.Mode = intent.Shared
	}
	if out.OfferedAs == v1alpha1.OfferedAsResource {
		out.ResourceName = policy.ResourceName(c)
	}
	if out.Poller == "" {
		out.Poller = "auto"
	}
	out.Guarantee, out.Ceiling = policy.Bits(c.Guarantee, link), policy.Bits(c.Ceiling, link)
	going := n.going(c.Name)
	out.Units = make([]classes.Unit, 0, policy.Size(c))
	for i := range policy.Size(c) {
		id := policy.UnitID(c.Name, i)
		u := classes.Unit{ID: id, Lane: policy.LaneOf(c, id)}
		if !policy.IsShared(c) {
			u.Lane = policy.Leader(joined, c.Name, id)
		}
		if h, ok := holders[id]; ok {
			u.Holder = &h
		} else if going {
			continue
		}
		u.Queues, u.Unhealthy = n.queues(u.Lane), n.unhealthy(u.Lane)
		out.Units = append(out.Units, u)
	}
	return out
}

// going reports whether the wanted policy has the class no more.
func (n *Node) going(class string) bool {
	if n.wanted == nil || n.wanted.err != nil || n.problem != "" {
		return false
	}
	return n.wanted.spec == nil || !slices.ContainsFunc(n.wanted.spec.Classes, func(c v1alpha1.Class) bool { return c.Name == class })
}

func (n *Node) queues(lane string) []int {
	if n.applied == nil {
		return nil
	}
	for _, l := range n.applied.Plan.Lanes {
		if l.Name == lane {
			return l.Queues
		}
	}
	return nil
}

func (n *Node) unhealthy(lane string) string {
	if n.applied == nil {
		if n.problem != "" {
			return "its lane is not made: " + n.problem
		}
		return "its lane is not made yet"
	}
	return strings.Join(append(slices.Clone(n.drifts[""]), n.drifts[lane]...), "; ")
}

// Now implements classes.Inventory.
func (n *Node) Now() *classes.Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.renew()
	return n.snap
}

// Changed implements classes.Inventory.
func (n *Node) Changed(version uint64) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.renew()
	if n.version != version {
		c := make(chan struct{})
		close(c)
		return c
	}
	return n.changed
}

// Hold implements classes.Inventory.
func (n *Node) Hold(ctx context.Context, h classes.Hold) error {
	if h.Key == "" || len(h.Units) == 0 {
		return fmt.Errorf("claim %s: a hold needs a key and a unit", h.Claim)
	}
	return n.do(ctx, false, func(s *state) error {
		given := h
		given.Units = slices.Clone(h.Units)
		was, again := s.Holds[h.Key]
		delete(s.Holds, h.Key)
		holders := s.holders()
		for i := range given.Units {
			u := &given.Units[i]
			c := s.class(u.Class)
			if c == nil || policy.Offered(c) != v1alpha1.OfferedAsClaim {
				return fmt.Errorf("claim %s: class %q: %w", h.Claim, u.Class, classes.ErrNoClass)
			}
			if policy.IsShared(c) && u.Unit == "" {
				if again && len(was.Units) == len(given.Units) && was.Units[i].Class == u.Class {
					u.Unit = was.Units[i].Unit
				} else {
					u.Unit = freePlace(c, holders)
				}
				if u.Unit == "" {
					return fmt.Errorf("claim %s: class %s has %d places, all taken: %w", h.Claim, c.Name, policy.Size(c), classes.ErrHeld)
				}
			}
			if no := policy.UnitNumber(c.Name, u.Unit); no < 0 || no >= policy.Size(c) {
				return fmt.Errorf("claim %s: class %s: unit %q: %w", h.Claim, c.Name, u.Unit, classes.ErrNoUnit)
			}
			if who, taken := holders[u.Unit]; taken && !slices.Contains(h.Pods, who.UID) {
				return fmt.Errorf("claim %s: unit %s: %s: %w", h.Claim, u.Unit, who, classes.ErrHeld)
			}
			n.mu.Lock()
			why := n.unhealthy(policy.LaneOf(c, u.Unit))
			n.mu.Unlock()
			if why != "" && !again {
				return fmt.Errorf("claim %s: unit %s: %w: %s", h.Claim, u.Unit, classes.ErrUnhealthy, why)
			}
			holders[u.Unit] = classes.Holder{Pod: h.Claim}
		}
		s.Holds[h.Key] = given
		return nil
	})
}

func freePlace(c *v1alpha1.Class, holders map[string]classes.Holder) string {
	for i := range policy.Size(c) {
		if id := policy.UnitID(c.Name, i); holders[id] == (classes.Holder{}) {
			return id
		}
	}
	return ""
}

// Release implements classes.Inventory.
func (n *Node) Release(ctx context.Context, key string) error {
	n.mu.Lock()
	_, known := n.st.Holds[key]
	n.mu.Unlock()
	if !known {
		return nil
	}
	return n.do(ctx, true, func(s *state) error {
		delete(s.Holds, key)
		s.remove(func(a *Attachment) bool { return slices.Contains(a.Holds, key) })
		return nil
	})
}

// Holds implements classes.Inventory.
func (n *Node) Holds() []classes.Hold {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]classes.Hold, 0, len(n.st.Holds))
	for _, key := range slices.Sorted(maps.Keys(n.st.Holds)) {
		out = append(out, n.st.Holds[key])
	}
	return out
}

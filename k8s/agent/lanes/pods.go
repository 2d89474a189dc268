// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/niclane/niclane/k8s/inventory"
	"github.com/niclane/niclane/k8s/policy"
)

// startGrace is how long a unit that kubelet gave belongs to a pod that has not
// been seen yet: the time from admission to its sandbox's network.
const startGrace = 2 * time.Minute

// Granted records that kubelet has given units to a container that is about to
// start. It refuses units that cannot be given.
func (n *Node) Granted(class string, ids []string) error {
	c := n.Now().Find(class)
	if c == nil {
		return fmt.Errorf("%s: %w", class, classes.ErrNoClass)
	}
	for _, id := range ids {
		u := c.Find(id)
		if u == nil {
			return fmt.Errorf("%s: %w", id, classes.ErrNoUnit)
		}
		if u.Unhealthy != "" {
			return fmt.Errorf("%s: %w: %s", id, classes.ErrUnhealthy, u.Unhealthy)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		n.granted[id] = time.Now()
	}
	return nil
}

// Attach puts a pod into its lanes. It returns when its packets are steered, or an
// error, and then nothing has changed. A sandbox that is attached already is
// attached anew.
func (n *Node) Attach(ctx context.Context, a Attachment) error {
	return n.do(ctx, false, func(s *state) error {
		for _, g := range a.Grants {
			c := s.class(g.Class)
			if c == nil {
				return fmt.Errorf("class %s: %w", g.Class, classes.ErrNoClass)
			}
			for _, id := range g.Units {
				if no := policy.UnitNumber(c.Name, id); no < 0 || no >= policy.Size(c) {
					return fmt.Errorf("class %s: unit %s: %w", g.Class, id, classes.ErrNoUnit)
				}
			}
		}
		s.remove(func(other *Attachment) bool {
			if other.UID != a.UID && !overlapping(other, &a) && !sharesUnit(other, &a) || other.UID == a.UID && other.Sandbox == a.Sandbox {
				return false
			}
			// kubelet and the address plugin give a unit and an address to one pod at a
			// time: the other's end was missed.
			n.o.Log.Warn("a pod's end was missed", "pod", other.Name(), "now", a.Name())
			return true
		})
		if err := s.frontendTaken(&a); err != nil {
			return err
		}
		s.put(a)
		return nil
	})
}

func sharesUnit(a, b *Attachment) bool {
	for _, g := range a.Grants {
		for _, h := range b.Grants {
			if slices.ContainsFunc(g.Units, func(id string) bool { return slices.Contains(h.Units, id) }) {
				return true
			}
		}
	}
	return false
}

// Detach takes a sandbox's interface out of its lanes, all of them if ifname is
// "". One that is unknown is nil; so is one whose steering cannot be removed now:
// it is removed later.
func (n *Node) Detach(ctx context.Context, sandbox, ifname string) error {
	n.mu.Lock()
	known := false
	for _, a := range n.st.Attachments {
		known = known || a.Sandbox == sandbox
	}
	n.mu.Unlock()
	if !known {
		return nil
	}
	return n.do(ctx, true, func(s *state) error {
		s.remove(func(a *Attachment) bool {
			return a.Sandbox == sandbox && (ifname == "" || a.IfName == ifname)
		})
		return nil
	})
}

// Keep takes out of their lanes all attachments for which still is false.
func (n *Node) Keep(ctx context.Context, still func(Attachment) bool) error {
	if !slices.ContainsFunc(n.Attachments(), func(a Attachment) bool { return !still(a) }) {
		return nil
	}
	return n.do(ctx, true, func(s *state) error {
		s.remove(func(a *Attachment) bool { return !still(*a) })
		return nil
	})
}

// Attachments returns the pods that are in lanes, by sandbox.
func (n *Node) Attachments() []Attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.st.Attachments
	out := make([]Attachment, len(all))
	for i, a := range all {
		out[i] = a.Attachment
	}
	return out
}

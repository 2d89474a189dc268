// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/policy"
)

// startGrace is how long a unit stays reserved after kubelet has given it to a pod that the runtime
// has not reported yet.
const startGrace = 2 * time.Minute

// Granted records that kubelet gives units of a class to a container that is about to start. It
// returns an error if a unit does not exist or is unhealthy.
func (m *Manager) Granted(class string, ids []string) error {
	c := m.Now().Find(class)
	if c == nil {
		return fmt.Errorf("%s: %w", class, inventory.ErrNoClass)
	}
	for _, id := range ids {
		u := c.Find(id)
		if u == nil {
			return fmt.Errorf("%s: %w", id, inventory.ErrNoUnit)
		}
		if u.Unhealthy != "" {
			return fmt.Errorf("%s: %w: %s", id, inventory.ErrUnhealthy, u.Unhealthy)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.granted[id] = time.Now()
	}
	return nil
}

// Forget ends the reservation of units that kubelet gave to pods before a time, except those in
// use: the pods have ended before the runtime reported them.
func (m *Manager) Forget(before time.Time, use map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, when := range m.granted {
		if when.Before(before) && !use[id] {
			delete(m.granted, id)
		}
	}
}

// A ClaimError says that a claim has a lane of an exclusive class, and another pod of the claim is
// in that lane.
type ClaimError struct {
	Claim, Lane string
	// By is the other pod's attachment.
	By Attachment
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("claim %s has lane %s, and pod %s is in it: an exclusive class has a lane for one pod; "+
		"give each "+
		"pod a claim of its own (resourceClaimTemplateName), or use a shared class", e.Claim, e.Lane, e.By.Name())
}

// Attach puts a pod into its lanes, and returns when its packets are steered. After an error,
// nothing has changed. It replaces an earlier attachment of the same sandbox and interface. Pods of
// one claim can be in a lane of a shared class together. In a lane of an exclusive class, the second
// pod is a ClaimError.
func (m *Manager) Attach(ctx context.Context, a Attachment) error {
	return m.do(ctx, false, func(s *state) error {
		for _, g := range a.Grants {
			c := s.class(g.Class)
			if c == nil {
				return fmt.Errorf("class %s: %w", g.Class, inventory.ErrNoClass)
			}
			for _, id := range g.Units {
				if no := policy.UnitNumber(c.Name, id); no < 0 || no >= policy.Size(c) {
					return fmt.Errorf("class %s: unit %s: %w", g.Class, id, inventory.ErrNoUnit)
				}
			}
		}
		if err := s.claimTaken(&a); err != nil {
			return err
		}
		s.remove(func(other *Attachment) bool {
			taken := sharesUnit(other, &a) && sharedHold(other, &a) == ""
			if other.UID != a.UID && !overlapping(other, &a) && !taken ||
				other.UID == a.UID && other.Sandbox == a.Sandbox {
				return false
			}
			// kubelet gives a unit to one pod at a time, and the IPAM plugin an address. So the other pod
			// has ended, and the agent has missed it.
			m.o.Log.Warn("a pod's end was missed", "pod", other.Name(), "now", a.Name())
			return true
		})
		if err := s.frontendTaken(&a); err != nil {
			return err
		}
		s.put(a)
		return nil
	})
}

// claimTaken returns a ClaimError if a pod's lane of an exclusive class is another pod's by the same
// claim.
func (s *state) claimTaken(a *Attachment) error {
	for _, other := range s.Attachments {
		key := sharedHold(other, a)
		if key == "" || other.UID == a.UID || !sharesUnit(other, a) {
			continue
		}
		for _, g := range a.Grants {
			if c := s.class(g.Class); c != nil && !policy.IsShared(c) {
				return &ClaimError{Claim: s.Holds[key].Claim, Lane: g.Lane, By: *other}
			}
		}
	}
	return nil
}

// sharedHold returns the key of a hold from which both pods have grants, "" if there is none.
func sharedHold(a, b *Attachment) string {
	for _, key := range a.Holds {
		if slices.Contains(b.Holds, key) {
			return key
		}
	}
	return ""
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

// Detach removes a sandbox's interface from its lanes. If ifname is "", it removes all interfaces
// of the sandbox. It returns nil for an unknown sandbox, and if the card cannot be changed now: the
// Manager then changes it later.
func (m *Manager) Detach(ctx context.Context, sandbox, ifname string) error {
	m.mu.Lock()
	known := false
	for _, a := range m.st.Attachments {
		known = known || a.Sandbox == sandbox
	}
	m.mu.Unlock()
	if !known {
		return nil
	}
	return m.do(ctx, true, func(s *state) error {
		s.remove(func(a *Attachment) bool {
			return a.Sandbox == sandbox && (ifname == "" || a.IfName == ifname)
		})
		return nil
	})
}

// Keep keeps the attachments for which still returns true, and removes the others.
func (m *Manager) Keep(ctx context.Context, still func(Attachment) bool) error {
	if !slices.ContainsFunc(m.Attachments(), func(a Attachment) bool { return !still(a) }) {
		return nil
	}
	return m.do(ctx, true, func(s *state) error {
		s.remove(func(a *Attachment) bool { return !still(*a) })
		return nil
	})
}

// Attachments returns the pods in lanes, sorted by their sandbox's ID.
func (m *Manager) Attachments() []Attachment {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Attachment, len(m.st.Attachments))
	for i, a := range m.st.Attachments {
		out[i] = *a
	}
	return out
}

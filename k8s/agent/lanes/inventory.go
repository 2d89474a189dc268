// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/intent"
)

var _ inventory.Inventory = (*Manager)(nil)

// publish makes a new snapshot if the state has changed, and always calls Options.Changed.
func (m *Manager) publish() {
	m.mu.Lock()
	m.stale = true
	m.renew()
	m.mu.Unlock()
	m.o.Changed()
}

// renew makes a new snapshot if the state has changed. The caller holds m.mu. renew reads the units
// of all pods. This takes time, so a starting pod gets its answer first.
func (m *Manager) renew() {
	if !m.stale {
		return
	}
	m.stale = false
	next := m.snapshot()
	next.Version = m.version
	if m.snap == nil || !next.Equal(m.snap) {
		m.version++
		next.Version = m.version
		m.snap = next
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// snapshot returns a snapshot of the present state. The caller holds m.mu.
func (m *Manager) snapshot() *inventory.Snapshot {
	out := &inventory.Snapshot{Node: m.o.Name, Removed: m.removing()}
	if m.st.Spec == nil {
		return out
	}
	actual := map[string]string{}
	var link uint64
	if a := m.applied; a != nil && len(a.Plan.Devices) > 0 {
		if d := a.State.Device(a.Plan.Devices[0]); d != nil {
			link = d.Speed
			out.Device = &inventory.Device{Name: d.Name, Driver: d.Driver, PCI: d.Bus, NUMA: d.Node, Speed: d.Speed}
		}
		for _, c := range a.Plan.Choices {
			if part := string(c.Part); c.Mechanism != "" && actual[part] == "" { // of several devices, the first one's
				actual[part] = c.Mechanism
			}
		}
	}
	holders, joined := m.st.holders(), m.st.joined()
	for i := range m.st.Spec.Classes {
		c := &m.st.Spec.Classes[i]
		out.Classes = append(out.Classes, m.class(c, link, actual, holders, joined))
	}
	return out
}

func (m *Manager) class(c *v1alpha1.Class, link uint64, actual map[string]string, holders map[string]inventory.Holder,
	joined []policy.Joining) inventory.Class {
	out := inventory.Class{
		Name: c.Name, Mode: intent.Exclusive, OfferedAs: policy.Offered(c), Queues: c.Queues, Rank: c.Rank,
		Poller: cmp.Or(c.Poller, v1alpha1.PollerAuto), Mechanisms: actual, HostNetwork: c.HostNetwork,
		NUMAHint: c.NUMAHint == nil || *c.NUMAHint,
	}
	if policy.IsShared(c) {
		out.Mode = intent.Shared
	}
	if out.OfferedAs == v1alpha1.OfferedAsResource {
		out.ResourceName = policy.ResourceName(c)
	}
	out.Guarantee, out.Ceiling = policy.Bits(c.Guarantee, link), policy.Bits(c.Ceiling, link)
	going := m.going(c.Name)
	out.Units = make([]inventory.Unit, 0, policy.Size(c))
	for i := range policy.Size(c) {
		id := policy.UnitID(c.Name, i)
		u := inventory.Unit{ID: id, Lane: policy.LaneOf(c, id)}
		if !policy.IsShared(c) {
			u.Lane = policy.Leader(joined, c.Name, id)
		}
		if h, ok := holders[id]; ok {
			u.Holder = &h
		} else if going {
			continue
		}
		u.Queues, u.Unhealthy = m.queues(u.Lane), m.unhealthy(u.Lane)
		out.Units = append(out.Units, u)
	}
	return out
}

// going reports whether the wanted policy no longer has the class, so that it ends with its pods.
func (m *Manager) going(class string) bool {
	if m.wanted == nil || m.wanted.err != nil || m.problem != "" {
		return false
	}
	return m.wanted.spec == nil || !slices.ContainsFunc(m.wanted.spec.Classes, func(c v1alpha1.Class) bool {
		return c.Name == class
	})
}

func (m *Manager) queues(lane string) []int {
	if m.applied == nil {
		return nil
	}
	for _, l := range m.applied.Plan.Lanes {
		if l.Name == lane {
			return l.Queues
		}
	}
	return nil
}

func (m *Manager) unhealthy(lane string) string {
	if m.applied == nil {
		if m.problem != "" {
			return "its lane is not made: " + m.problem
		}
		return "its lane is not made yet"
	}
	return strings.Join(append(slices.Clone(m.drifts[""]), m.drifts[lane]...), "; ")
}

// Now implements inventory.Inventory.
func (m *Manager) Now() *inventory.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew()
	return m.snap
}

// Changed implements inventory.Inventory.
func (m *Manager) Changed(version uint64) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew()
	if m.version != version {
		c := make(chan struct{})
		close(c)
		return c
	}
	return m.changed
}

// Hold implements inventory.Inventory.
func (m *Manager) Hold(ctx context.Context, h inventory.Hold) error {
	if h.Key == "" || len(h.Units) == 0 {
		return fmt.Errorf("claim %s: a hold needs a key and a unit", h.Claim)
	}
	return m.do(ctx, false, func(s *state) error {
		given := h
		given.Units = slices.Clone(h.Units)
		was, again := s.Holds[h.Key]
		delete(s.Holds, h.Key)
		holders := s.holders()
		for i := range given.Units {
			u := &given.Units[i]
			c := s.class(u.Class)
			if c == nil || policy.Offered(c) != v1alpha1.OfferedAsClaim {
				return fmt.Errorf("claim %s: class %q: %w", h.Claim, u.Class, inventory.ErrNoClass)
			}
			if policy.IsShared(c) && u.Unit == "" {
				if again && len(was.Units) == len(given.Units) && was.Units[i].Class == u.Class {
					u.Unit = was.Units[i].Unit
				} else {
					u.Unit = freePlace(c, holders)
				}
				if u.Unit == "" {
					return fmt.Errorf("claim %s: class %s has %d places, all taken: %w", h.Claim, c.Name,
						policy.Size(c), inventory.ErrHeld)
				}
			}
			if no := policy.UnitNumber(c.Name, u.Unit); no < 0 || no >= policy.Size(c) {
				return fmt.Errorf("claim %s: class %s: unit %q: %w", h.Claim, c.Name, u.Unit, inventory.ErrNoUnit)
			}
			if who, taken := holders[u.Unit]; taken && !slices.Contains(h.Pods, who.UID) {
				return fmt.Errorf("claim %s: unit %s: %s: %w", h.Claim, u.Unit, who, inventory.ErrHeld)
			}
			m.mu.Lock()
			why := m.unhealthy(policy.LaneOf(c, u.Unit))
			m.mu.Unlock()
			if why != "" && !again {
				return fmt.Errorf("claim %s: unit %s: %w: %s", h.Claim, u.Unit, inventory.ErrUnhealthy, why)
			}
			holders[u.Unit] = inventory.Holder{Pod: h.Claim}
		}
		s.Holds[h.Key] = given
		return nil
	})
}

func freePlace(c *v1alpha1.Class, holders map[string]inventory.Holder) string {
	for i := range policy.Size(c) {
		if id := policy.UnitID(c.Name, i); holders[id] == (inventory.Holder{}) {
			return id
		}
	}
	return ""
}

// Release implements inventory.Inventory.
func (m *Manager) Release(ctx context.Context, key string) error {
	m.mu.Lock()
	_, known := m.st.Holds[key]
	m.mu.Unlock()
	if !known {
		return nil
	}
	return m.do(ctx, true, func(s *state) error {
		delete(s.Holds, key)
		s.remove(func(a *Attachment) bool { return slices.Contains(a.Holds, key) })
		return nil
	})
}

// Holds implements inventory.Inventory.
func (m *Manager) Holds() []inventory.Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]inventory.Hold, 0, len(m.st.Holds))
	for _, key := range slices.Sorted(maps.Keys(m.st.Holds)) {
		out = append(out, m.st.Holds[key])
	}
	return out
}

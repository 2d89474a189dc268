// SPDX-License-Identifier: Apache-2.0

package device

// A Change is an object's value before and after; nil: absent.
type Change struct{ Old, New Object }

// After returns the state that s becomes by changes, made by Put in their order;
// s stays as it is. Lists that are as long as there are members are gone
// through once, not once for each member.
func (s *State) After(changes []Change) *State {
	after := s.Clone()
	entries := many[FilterEntry]{of: func(e FilterEntry) identity { return identity{e.Filter, e.Match} }}
	rules := many[Rule]{of: func(r Rule) identity { return identity{r.Dev, r.Match} }}
	steered := many[XDPEntry]{of: func(e XDPEntry) identity { return identity{e.Dev, e.Match} }}
	for _, c := range changes {
		if !entries.add(c) && !rules.add(c) && !steered.add(c) {
			after.Put(c.Old, c.New)
		}
	}
	for i := range after.Devices {
		d := &after.Devices[i]
		d.Entries = entries.apply(d.Entries, func(e FilterEntry) bool { return d.hasFilter(e.Filter) })
		d.Rules = rules.apply(d.Rules, func(r Rule) bool { return r.Dev == d.Name })
		d.XDPEntries = steered.apply(d.XDPEntries, func(e XDPEntry) bool { return e.Dev == d.Name })
	}
	return after
}

// An identity tells objects of one kind apart, and is cheaper than their keys.
type identity struct {
	in    string // filter or device
	match Match
}

// many are the last changes of objects of one kind.
type many[T Object] struct {
	of    func(T) identity
	last  map[identity]Object
	order []T
}

// add takes a change of an object of the kind.
func (m *many[T]) add(c Change) bool {
	o, ok := c.New.(T)
	if !ok {
		if o, ok = c.Old.(T); !ok {
			return false
		}
	}
	if m.last == nil {
		m.last = map[identity]Object{}
	}
	id := m.of(o)
	if _, seen := m.last[id]; !seen {
		m.order = append(m.order, o)
	}
	m.last[id] = c.New
	return true
}

// apply returns the list with the changes of those that are mine.
func (m *many[T]) apply(list []T, mine func(T) bool) []T {
	if len(m.order) == 0 {
		return list
	}
	out := make([]T, 0, len(list)+len(m.order))
	for _, o := range list {
		if _, changed := m.last[m.of(o)]; !changed {
			out = append(out, o)
		}
	}
	for _, o := range m.order {
		if next, ok := m.last[m.of(o)].(T); ok && mine(o) {
			out = append(out, next)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package device

// A Change is an object's value before and after; nil means absent.
type Change struct{ Old, New Object }

// After returns a copy of s after the changes, in their order. The result is that of Put for each
// change. Lists with an entry per member are rewritten only once, not for each change.
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

// An identity identifies an object among those of its kind. It is cheaper to make than a key.
type identity struct {
	in    string // filter or device
	match Match
}

// many holds, for one kind of objects, the last change of each object.
type many[T Object] struct {
	of    func(T) identity
	last  map[identity]Object
	order []T
}

// add records a change if the object is of type T. It reports whether it did.
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

// apply returns list after the recorded changes. mine reports whether a new object belongs to
// this list.
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

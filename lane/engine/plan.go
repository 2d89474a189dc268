// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// A Planned is a plan, and the state in which it was made.
type Planned struct {
	*plan.Plan
	State *device.State
	// devices are the file's, groups the control groups of the file and of its earlier
	// applies.
	devices, groups []string
}

// Plan plans a file against the machine, and changes nothing. What cannot be made is
// plan.Errors, by paths of the file.
func (e *Engine) Plan(ctx context.Context, f *File) (*Planned, error) {
	defer e.Memory.lock()()
	s, _, err := e.existing()
	if err != nil {
		return nil, err
	}
	if s != nil {
		defer s.Close()
	}
	return e.plan(ctx, f, s)
}

// pastApplies is what earlier applies of a file have written, and where.
type pastApplies struct {
	plan.Owned
	journals        []*journal.Journal
	devices, groups []string
	err             error
}

// plan plans with the journals of s, nil where there are none.
func (e *Engine) plan(ctx context.Context, f *File, s *journal.Store) (*Planned, error) {
	// Reading the journals of a thousand members takes as long as looking at
	// them does.
	journals := make(chan pastApplies, 1)
	go func() { journals <- earlierOf(s, f.Name) }()
	groups := f.groups()
	st, err := e.look(ctx, f.Devices(), groups)
	before := <-journals
	if err == nil {
		err = before.err
	}
	if err != nil {
		return nil, err
	}
	if s != nil {
		// Before planning: what another file did to the device would
		// look like somebody else's settings.
		if err := s.Conflict(f.Name, f.Devices(), linksOf(f, st)); err != nil {
			return nil, err
		}
	}
	// What an earlier apply wrote where the file has nothing more goes back.
	left := absent(before.devices, func(dev string) bool { return st.Device(dev) != nil })
	if all := allGroups(f, before); len(left) > 0 || len(all) > len(groups) {
		groups = all
		if st, err = e.look(ctx, append(left, f.Devices()...), groups); err != nil {
			return nil, err
		}
	}
	p, err := plan.Make(f.Intent, st, before.Owned)
	if err != nil {
		return nil, f.located(err)
	}
	return &Planned{p, st, f.Devices(), groups}, nil
}

// earlierOf reads the journals of a file.
func earlierOf(s *journal.Store, name string) (of pastApplies) {
	if s == nil {
		return of
	}
	js, err := s.Here()
	of.err = err
	for _, j := range js {
		if of.err == nil && j.Head().Config == name {
			of.journals = append(of.journals, j)
			of.Owned, of.devices = j.AppendOwned(of.Owned), append(of.devices, j.Head().Devices...)
			of.groups = recordedGroups(of.groups, j)
			of.err = inPlace(j.Head())
		}
	}
	return of
}

// allGroups are the control groups of a file and of its earlier applies.
func allGroups(f *File, before pastApplies) []string {
	named := f.groups()
	return append(named, absent(before.groups, func(g string) bool { return slices.Contains(named, g) })...)
}

// linksOf are the file's devices that are here, by what identifies them.
func linksOf(f *File, st *device.State) []device.Link {
	var out []device.Link
	for _, name := range f.Devices() {
		if d := st.Device(st.Resolve(name)); d != nil {
			out = append(out, d.Link())
		}
	}
	return out
}

// PlanAnew plans a file as if what an earlier apply of it owns were undone, and gives the
// undoing; none where it owns nothing.
func (e *Engine) PlanAnew(ctx context.Context, f *File) (undo []plan.Step, p *plan.Plan, err error) {
	defer e.Memory.lock()()
	s, _, err := e.existing()
	if s == nil || err != nil {
		return nil, nil, err
	}
	defer s.Close()
	before := earlierOf(s, f.Name)
	if before.err != nil || len(before.Records) == 0 {
		return nil, nil, before.err
	}
	devices := append(f.Devices(), absent(before.devices,
		func(dev string) bool { return slices.Contains(f.Devices(), dev) })...)
	st, err := e.look(ctx, devices, allGroups(f, before))
	if err != nil {
		return nil, nil, err
	}
	undo = plan.Undo(st, before.Owned)
	p, err = plan.Make(f.Intent, st.After(changes(undo)), plan.Owned{})
	return undo, p, err
}

// GroupsOf returns the control groups that the earlier applies of a file, by its name,
// have objects of.
func (e *Engine) GroupsOf(name string) ([]string, error) {
	defer e.Memory.lock()()
	s, _, err := e.existing()
	if s == nil || err != nil {
		return nil, err
	}
	defer s.Close()
	of := earlierOf(s, name)
	return of.groups, of.err
}

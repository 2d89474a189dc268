// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// A Planned is a plan with the state that it was made for.
type Planned struct {
	*plan.Plan
	State *device.State
	// devices are the devices that the file names. groups are the control groups of the file and of
	// its earlier applies.
	devices, groups []string
}

// Plan makes a plan of a file for the present state of the machine. It changes nothing. If the
// lanes are not possible, the error is plan.Errors, with paths of the file.
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

// pastApplies has the objects that earlier applies of a file have written, and the devices and
// control groups of these objects.
type pastApplies struct {
	plan.Owned
	journals        []*journal.Journal
	devices, groups []string
	err             error
}

// plan makes a plan with the journals of s, which may be nil.
func (e *Engine) plan(ctx context.Context, f *File, s *journal.Store) (*Planned, error) {
	// Read journals and machine at the same time: with a thousand members, both take equally long.
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
		// Check this before planning. Otherwise planning would take another file's changes to the
		// device for those of another program.
		if err := s.Conflict(f.Name, f.Devices(), linksOf(f, st)); err != nil {
			return nil, err
		}
	}
	// The machine must also be read for objects of an earlier apply that the file no longer asks
	// for: they must be restored.
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

// earlierOf reads the journals of a file, by the file's name.
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

// allGroups returns the control groups that the file names, and those of its earlier applies.
func allGroups(f *File, before pastApplies) []string {
	named := f.groups()
	return append(named, absent(before.groups, func(g string) bool { return slices.Contains(named, g) })...)
}

// linksOf returns the identities of the file's devices, without absent ones.
func linksOf(f *File, st *device.State) []device.Link {
	var out []device.Link
	for _, name := range f.Devices() {
		if d := st.Device(st.Resolve(name)); d != nil {
			out = append(out, d.Link())
		}
	}
	return out
}

// PlanAnew makes a plan of a file for the state that a rollback of the file would restore. undo
// are the steps of that rollback. It returns nothing if the file owns no objects.
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

// GroupsOf returns the control groups in which earlier applies of a file have objects.
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

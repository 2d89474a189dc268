// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// after is the state that steps make of before, without the members' rules and
// map entries that owned records: those who read it look in the journal for what
// is niclane's, and of a thousand members it would be all but a hundredth.
func after(before *device.State, steps []plan.Step, owned []journal.Record) *device.State {
	ours := membersOf(owned)
	var changes []device.Change
	for _, s := range steps {
		// What is given back to somebody else is no record's any more.
		if m, ok := memberOf(s.Object()); !ok || !ours[m] {
			changes = append(changes, device.Change{Old: s.Old, New: s.New})
		}
	}
	return without(before, ours).After(changes)
}

// A member is what the key of an object says of which there are as many as
// members; it costs no string.
type member struct {
	kind, of string
	match    device.Match
}

func ofRule(r device.Rule) member         { return member{r.Kind(), r.Dev, r.Match} }
func ofEntry(e device.FilterEntry) member { return member{e.Kind(), e.Filter, e.Match} }
func ofXDPEntry(e device.XDPEntry) member { return member{e.Kind(), e.Dev, e.Match} }

func memberOf(o device.Object) (m member, ok bool) {
	switch o := o.(type) {
	case device.Rule:
		return ofRule(o), true
	case device.FilterEntry:
		return ofEntry(o), true
	case device.XDPEntry:
		return ofXDPEntry(o), true
	}
	return member{}, false
}

// membersOf are the records that are as many as members.
func membersOf(owned []journal.Record) map[member]bool {
	all := make(map[member]bool, len(owned))
	for i := range owned {
		if m, ok := memberOf(owned[i].Object()); ok {
			all[m] = true
		}
	}
	return all
}

// without is st without these members' rules and map entries.
func without(st *device.State, ours map[member]bool) *device.State {
	less := *st
	less.Devices = slices.Clone(st.Devices)
	for i := range less.Devices {
		d := &less.Devices[i]
		d.Rules, d.Entries, d.XDPEntries = others(d.Rules, ofRule, ours), others(d.Entries, ofEntry, ours), others(d.XDPEntries, ofXDPEntry, ours)
	}
	return &less
}

func others[T any](all []T, of func(T) member, ours map[member]bool) []T {
	var out []T
	for _, o := range all {
		if !ours[of(o)] {
			out = append(out, o)
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/plan"
)

// after is the state that steps make of before, without the members' rules and
// map entries that owned records: those who read it look in the journal for what
// is niclane's, and of a thousand members it would be all but a hundredth.
func after(before *device.State, steps []plan.Step, owned []journal.Record) *device.State {
	ours := memberKeys(owned)
	var changes []device.Change
	for _, s := range steps {
		// What is given back to somebody else is no record's any more.
		if o := s.Object(); !ofMember(o) || !ours[o.Key()] {
			changes = append(changes, device.Change{Old: s.Old, New: s.New})
		}
	}
	return without(before, ours).After(changes)
}

// memberKeys are the keys of the records that are as many as members.
func memberKeys(owned []journal.Record) map[string]bool {
	keys := make(map[string]bool, len(owned))
	for _, r := range owned {
		if ofMember(r.Object()) {
			keys[r.Key()] = true
		}
	}
	return keys
}

// without is st without the members' rules and map entries of these keys.
func without(st *device.State, ours map[string]bool) *device.State {
	less := *st
	less.Devices = slices.Clone(st.Devices)
	for i := range less.Devices {
		d := &less.Devices[i]
		d.Rules, d.Entries, d.XDPEntries = others(d.Rules, ours), others(d.Entries, ours), others(d.XDPEntries, ours)
	}
	return &less
}

// ofMember reports whether there are as many objects of the kind as members.
func ofMember(o device.Object) bool {
	switch o.(type) {
	case device.Rule, device.FilterEntry, device.XDPEntry:
		return true
	}
	return false
}

func others[T device.Object](all []T, ours map[string]bool) []T {
	var out []T
	for _, o := range all {
		if !ours[o.Key()] {
			out = append(out, o)
		}
	}
	return out
}

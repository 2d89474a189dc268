// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAfter checks that After gives the same result as one Put for each change, in all lists.
func TestAfter(t *testing.T) {
	filter := Filter{Dev: "d0", Parent: "egress", Pref: 1, Handle: 1, Program: "niclane_egress"}
	other := filter
	other.Dev = "d1"
	match := func(port int) Match { return Match{Family: 4, Protocol: "tcp", LocalPort: uint16(port)} }
	start := &State{Files: map[string]File{}, Devices: []Device{
		{Name: "d0", Rules: []Rule{{Dev: "d0", Match: match(1), Queue: 1}, {Dev: "d0", Match: match(2), Queue: 2}}},
		{Name: "d1", Rules: []Rule{{Dev: "d1", Match: match(1), Queue: 3}}},
	}}
	entry := func(port int, class string) FilterEntry {
		return FilterEntry{Filter: filter.Key(), Match: match(port), Priority: class}
	}
	xdp := XDP{Dev: "d0", Mode: "generic", Program: "niclane_ingress"}
	changes := []Change{
		{New: filter}, {New: xdp}, {New: other},
		{New: FilterEntry{Filter: other.Key(), Match: match(1), Priority: "1:12"}},
		{New: entry(1, "1:10")}, {New: entry(2, "1:10")},
		{Old: entry(1, "1:10"), New: entry(1, "1:11")},
		{Old: entry(2, "1:10")},
		{New: FilterEntry{Filter: "filter/d0/egress/9/9", Match: match(5), Priority: "1:10"}}, // no such filter
		{Old: start.Devices[0].Rules[0]},
		{Old: start.Devices[0].Rules[1], New: Rule{Dev: "d0", Match: match(2), Queue: 7}},
		{New: Rule{Dev: "d1", Match: match(9), Queue: 1}},
		{New: XDPEntry{Dev: "d0", Match: match(1), Lane: 1}},
		{New: XDPEntry{Dev: "nosuch", Match: match(1), Lane: 1}},
	}
	want := start.Clone()
	for i, c := range changes {
		want.Put(c.Old, c.New)
		got := start.After(changes[:i+1])
		if diff := cmp.Diff(want.Objects(), got.Objects()); diff != "" {
			t.Fatalf("after %d changes (-put +after):\n%s", i+1, diff)
		}
	}
	if len(start.Devices[0].Rules) != 2 || len(want.Objects()) < 6 {
		t.Error("the start has changed, or nothing came of the changes")
	}
}

func BenchmarkAfter(b *testing.B) {
	s := &State{Files: map[string]File{}, Devices: []Device{{Name: "d0"}}}
	var changes []Change
	for i := range 1000 {
		changes = append(changes, Change{New: Rule{Dev: "d0",
			Match: Match{Family: 4, Protocol: "tcp", Local: fmt.Sprintf("10.0.%d.%d/32", i>>8, i&0xff)}}})
	}
	for b.Loop() {
		s.After(changes)
	}
}

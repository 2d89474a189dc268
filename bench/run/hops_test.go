// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// TestGroupHops: each hop of the lab is counted in the right row, and the row has the right reach.
func TestGroupHops(t *testing.T) {
	c := lab.Config{LinkRate: 1e9, SwitchBuffer: 1000, Ring: 10, Queues: 2}
	lanes := map[string]string{"sut class 1:10": "memcached", "sut class 1:2": "default",
		"sut qdisc fq 3100:": "default", "sut qdisc fq 3107:": "redis", "sut qdisc fq 3108:": "redis"}
	got := groupHops([]lab.Hop{
		{Name: "switch to sut", Backlog: 1}, {Name: "card rx rings", Drops: 9}, {Name: "sut class 1:10", Backlog: 2},
		{Name: "sut class 1:2", Backlog: 3}, {Name: "sut class 1:1", Backlog: 5},
		{Name: "sut qdisc htb 1:", Backlog: 6}, {Name: "host backlog", Drops: 1},
		{Name: "card tx ring 0", Backlog: 10}, {Name: "card tx ring 1", Backlog: 20, Drops: 4},
		{Name: "sut qdisc fq 3100:", Backlog: 100}, {Name: "sut qdisc fq 3107:", Backlog: 200},
		{Name: "sut qdisc fq 3108:", Backlog: 300}, {Name: "sut qdisc fq 3109:", Backlog: 400},
	}, c, lanes)
	want := map[string]struct {
		reach   result.Reach
		backlog int64
		drops   uint64
		limit   int64
	}{
		"switch → SUT":                         {result.ReachNone, 1, 0, 1000},
		"SUT: class of lane memcached":         {result.ReachOwn, 2, 0, 0},
		"SUT: class of lane redis":             {result.ReachOwn, 500, 0, 0},
		"SUT: the default lane's class":        {result.ReachHost, 103, 0, 0},
		"SUT: packets handed to its processor": {result.ReachHost, 0, 1, 0},
		"card → link":                          {result.ReachHost, 30, 4, 20},
	}
	if len(got) != len(want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
	for _, g := range got {
		if w := want[g.Name]; g.Reach != w.reach || g.bytes != w.backlog || g.drops != w.drops || g.Limit != w.limit ||
			g.Rate != 1e9 {
			t.Errorf("%s: %+v, want %+v", g.Name, g, w)
		}
	}
}

// TestHopTable: the drops of a hop are counted from its own first reading on, even if the hop
// appears later than others.
func TestHopTable(t *testing.T) {
	var table hopTable
	of := func(name string, bytes int64, drops uint64) reading {
		return reading{result.Hop{Name: name}, bytes, drops}
	}
	table.record([]reading{of("a", 10, 5)})
	table.record([]reading{of("a", 30, 7), of("b", 1, 100)})
	table.record([]reading{of("b", 3, 101)})
	if len(table.hops) != 2 {
		t.Fatalf("%d hops", len(table.hops))
	}
	a, b := table.hops[0], table.hops[1]
	if a.Name != "a" || a.Drops != 2 || a.Bytes.Count() != 2 || a.Bytes.Max() != 30 {
		t.Errorf("a: %+v, %d samples", a, a.Bytes.Count())
	}
	if b.Drops != 1 || b.Bytes.Count() != 2 || b.Bytes.Mean() != 2 {
		t.Errorf("b: %+v, %d samples", b, b.Bytes.Count())
	}
}

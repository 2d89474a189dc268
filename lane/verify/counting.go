// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// A Counting says where niclane's classifier counts the packets that a lane sends. The classifier
// counts in rows and queues.
type Counting struct {
	Lane string
	// Row is the lower half of the lane's priority. It is 0 for the default lane and for lanes
	// without a priority.
	Row int
	// Queues are the lane's queues in Row. nil means all queues of the row that no other lane has.
	Queues []int
	// ByQueue says that the packets are counted in their real transmit queue, because the classifier
	// or XPS by receive queue chooses it.
	ByQueue bool
}

// Countings returns a Counting for each lane of a device. It returns none if the lanes have no
// classifier that reads packets, or one that only gives a DSCP: it then counts all lanes' packets
// together.
func Countings(a Applied, dev string) []Counting {
	c := &check{a: a, now: &device.State{}}
	of := map[string]Counting{}
	for _, r := range a.Owned {
		e, ok := r.Last.(device.FilterEntry)
		if lane := c.laneOf(r.Last, r.Cause); ok && c.deviceOf(e) == dev && lane != "" {
			if e.Priority == "" && len(e.Queues) == 0 && e.Lane == 0 {
				return nil
			}
			n := Counting{Lane: lane, Row: cmp.Or(e.Lane, rowOf(e.Priority)), ByQueue: len(e.Queues) > 0}
			if n.Row == 0 {
				n.Queues = e.Queues
			}
			of[lane] = n
		}
	}
	if len(of) == 0 {
		return nil
	}
	chosen := slices.ContainsFunc(a.Owned, func(r plan.Record) bool {
		d, ok := r.Last.(device.FilterDefault)
		return ok && c.deviceOf(d) == dev && len(d.Queues) > 0
	})
	var out []Counting
	for _, l := range a.Lanes {
		n, ok := of[l.Name]
		if l.Name == intent.DefaultLane {
			n, ok = Counting{Lane: l.Name, ByQueue: chosen}, true
		}
		if l.Device != dev || !ok {
			continue
		}
		n.ByQueue = n.ByQueue || c.follows(l)
		out = append(out, n)
	}
	return out
}

// CountedAs returns the lane whose packets are counted in this row and queue, "" for none.
func CountedAs(cs []Counting, row, queue int) string {
	rest := ""
	for _, c := range cs {
		switch {
		case c.Row != row:
		case slices.Contains(c.Queues, queue):
			return c.Lane
		case c.Queues == nil:
			rest = c.Lane
		}
	}
	return rest
}

// rowOf returns the lower half of a priority, 0x10 for "1:10". It returns 0 for none.
func rowOf(priority string) int {
	_, minor, _ := strings.Cut(priority, ":")
	n, _ := strconv.ParseUint(minor, 16, 16) // "" gives 0
	return int(n)
}

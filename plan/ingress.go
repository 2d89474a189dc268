// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/niclane/niclane/device"
)

// wantDefaultRSS keeps default traffic in the default lane's queues.
func (f *fit) wantDefaultRSS(def *placed) {
	if !f.uses(device.PartQueueSet, RealRSSContext) {
		return
	}
	f.want(device.RSSTable{
		Dev: f.dev.Name, Queues: spread(f.tableSize(), def.queues), Configured: true,
	}, device.PartQueueSet, lanePath(def.Lane, "queues"),
		"default traffic only in the default lane's queues "+device.FormatCPUList(def.queues))
}

// widens reports whether the default lane gets queues that its table, which
// niclane has set, does not have now.
func (f *fit) widens(def *placed) bool {
	for _, t := range f.dev.RSS {
		if _, ours := f.owned[t.Key()]; t.Context != 0 || !ours {
			continue
		}
		for _, q := range def.queues {
			if !slices.Contains(t.Queues, q) {
				return true
			}
		}
	}
	return false
}

// tableSize is the length of the device's indirection tables.
func (f *fit) tableSize() int {
	for _, t := range f.dev.RSS {
		if t.Context == 0 {
			return len(t.Queues)
		}
	}
	return 128 // the most common; the device corrects it on read-back
}

// spread fills an indirection table with queues in turn, as ethtool -X equal
// does.
func spread(size int, queues []int) []int {
	table := make([]int, size)
	for i := range table {
		table[i] = queues[i%len(queues)]
	}
	return table
}

// wantChannels grows the device to the queues needed; it never shrinks it.
func (f *fit) wantChannels(total int) {
	c := f.dev.Channels
	if c == nil {
		return
	}
	original := f.base(*c).(device.Channels)
	if total <= min(original.RX, original.TX)+original.Combined {
		return
	}
	n := original
	if n.Combined > 0 {
		n.Combined = total - min(n.RX, n.TX)
	} else {
		n.RX, n.TX = max(n.RX, total), max(n.TX, total)
	}
	f.wants = append(f.wants, want{
		Object: n, part: device.PartQueueSet, cause: "lanes", disruptive: true,
		reason: fmt.Sprintf("%d queues for all lanes", total),
	})
}

// wantContexts gives each lane an indirection table over its own queues, the
// last lane first if so asked.
func (f *fit) wantContexts(lanes []*placed, lastFirst bool) {
	if !f.uses(device.PartQueueSet, RealRSSContext) {
		return
	}
	lanes = slices.Clone(lanes)
	if lastFirst {
		slices.Reverse(lanes)
	}
	for _, l := range lanes {
		f.want(device.RSSTable{
			Dev: f.dev.Name, Context: l.number, Queues: spread(f.tableSize(), l.queues),
		}, device.PartQueueSet, lanePath(l.Lane, "queues"),
			fmt.Sprintf("queue set of lane %s: queues %s", l.Name, device.FormatCPUList(l.queues)))
	}
}

// wantRules steers the members' packets to their lane's queues. It comes
// last, when everything behind the rules is ready.
func (f *fit) wantRules(lanes []*placed) {
	if !f.uses(device.PartSteering, RealRules) {
		return
	}
	for _, l := range lanes {
		for i := range l.Members {
			m := &l.Members[i]
			for _, match := range f.matches(m) {
				f.want(device.Rule{Dev: f.dev.Name, Match: match, Context: l.number},
					device.PartSteering, m.Path, "packets of lane "+l.Name+" to its queues")
			}
		}
	}
}

func ruleTarget(r device.Rule) string {
	if r.Context > 0 {
		return "RSS context " + strconv.Itoa(r.Context)
	}
	return "queue " + strconv.Itoa(r.Queue)
}

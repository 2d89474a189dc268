// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// wantDefaultRSS keeps packets that match no lane in the default lane's queues. total is the
// number of queue pairs. Receive queues without a transmit queue also belong to the default lane.
func (f *fit) wantDefaultRSS(def *deviceLane, total int) {
	if !f.tables() {
		return
	}
	more, _ := f.unpaired(total)
	queues := slices.Concat(def.queues, more)
	if size := f.tableSize(); len(queues) > size {
		f.notef("the indirection table has %d entries for the default lane's %d queues: %d of them receive "+
			"nothing", size,
			len(queues), len(queues)-size)
	}
	f.want(device.RSSTable{
		Dev: f.dev.Name, Queues: spread(f.tableSize(), queues), Configured: true,
	}, device.PartQueueSet, lanePath(def.Lane, "queues"),
		"default traffic only in the default lane's queues "+device.FormatCPUList(queues))
}

// tables reports whether the mechanism of the queue sets uses the default RSS table to keep other
// traffic out of the lanes' queues.
func (f *fit) tables() bool {
	return f.uses(device.PartQueueSet, ByRSSContext) || f.uses(device.PartQueueSet, BySingleQueue)
}

// widens reports whether the default lane gets queues that its present table, made by niclane,
// does not have.
func (f *fit) widens(def *deviceLane) bool {
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

// tableSize returns the length of the device's indirection tables.
func (f *fit) tableSize() int {
	for _, t := range f.dev.RSS {
		if t.Context == 0 {
			return len(t.Queues)
		}
	}
	return 128 // the most common length; reading back after the write shows the real one
}

// spread returns an indirection table of the given size. Its entries are the queues in turn, as
// with ethtool -X equal.
func spread(size int, queues []int) []int {
	table := make([]int, size)
	for i := range table {
		table[i] = queues[i%len(queues)]
	}
	return table
}

// channels returns the device's present and wanted channels. The wanted ones have enough queues
// (total), and never fewer than before niclane. ok is false if the device has no channels.
func (f *fit) channels(total int) (now, shall device.Channels, ok bool) {
	c := f.dev.Channels
	if c == nil {
		return now, shall, false
	}
	n := f.base(*c).(device.Channels)
	if have := min(n.RX, n.TX) + n.Combined; total == have || total < have && !(f.byCard() && f.limits().Resizes) {
		return *c, n, true
	}
	if n.Combined > 0 {
		n.Combined = total - min(n.RX, n.TX)
	} else {
		n.RX, n.TX = max(n.RX, total), max(n.TX, total)
	}
	return *c, n, true
}

// shrinks reports whether the device now has channels that niclane added and no longer needs.
func (f *fit) shrinks(total int) bool {
	now, shall, ok := f.channels(total)
	return ok && shall.RX+shall.Combined < now.RX+now.Combined
}

func (f *fit) wantChannels(total int) {
	now, shall, ok := f.channels(total)
	if !ok || now == f.base(now).(device.Channels) && now == shall {
		return
	}
	if f.offloaded() && now != shall {
		f.failf("lanes", "the lanes need another number of channels on %s (%d, now %d), which is fixed while the "+
			"card has HTB classes: niclane rollback first",
			f.dev.Name, shall.RX+shall.Combined, now.RX+now.Combined)
		return
	}
	f.wantGone(shall.RX + shall.Combined)
	f.wants = append(f.wants, want{
		Object: shall, part: device.PartQueueSet, cause: "lanes", disruptive: true,
		reason: fmt.Sprintf("%d queues for all lanes", total),
	})
}

// wantGone records settings of other programs on queues that disappear when the channels are
// reduced to n, so that rollback restores them. It skips settings that a new queue has by
// default.
func (f *fit) wantGone(n int) {
	var gone []device.Object
	for _, o := range f.present {
		if q := f.queueOf(o); q >= n && !f.isFresh(o, q) {
			gone = append(gone, o)
		}
	}
	for key, r := range f.owned {
		if _, there := f.present[key]; !there && r.Original != nil && f.queueOf(r.Original) >= n {
			gone = append(gone, r.Original) // it disappeared in an earlier apply
		}
	}
	slices.SortFunc(gone, func(a, b device.Object) int {
		return cmp.Or(cmp.Compare(f.queueOf(a), f.queueOf(b)), strings.Compare(a.Key(), b.Key()))
	})
	for _, o := range gone {
		f.wantAbsent(o, device.PartQueueSet, "lanes",
			fmt.Sprintf("the kernel removes it with queue %d; rollback restores both", f.queueOf(o)))
	}
}

// queueOf returns the queue of f.dev that an object belongs to, -1 for none.
func (f *fit) queueOf(o device.Object) int {
	if q := device.QueueOf(o); q >= 0 && device.DeviceOf(o) == f.dev.Name {
		return q
	}
	return -1
}

// isFresh reports whether an object has the value that a new queue gets: no steering, no limits,
// and the moderation of the other queues. It returns false for an affinity, because a new queue's
// affinity is not known.
func (f *fit) isFresh(o device.Object, q int) bool {
	switch o := o.(type) {
	case device.Coalesce:
		first := device.Coalesce{Dev: o.Dev}
		now, ok := f.present[first.Key()].(device.Coalesce)
		now.Queue = q
		return ok && now == o
	case device.NAPIConfig:
		return o == f.freshNAPI(q)
	case device.File:
		return strings.Trim(strings.TrimSpace(o.Value), "0,") == ""
	}
	return false
}

// wantContexts gives each lane an RSS context whose table has the lane's queues. With lastFirst,
// it begins with the last lane.
func (f *fit) wantContexts(lanes []*deviceLane, lastFirst bool) {
	if !f.uses(device.PartQueueSet, ByRSSContext) {
		return
	}
	lanes = slices.Clone(lanes)
	if lastFirst {
		slices.Reverse(lanes)
	}
	for _, l := range lanes {
		if size := f.tableSize(); len(l.queues) > size {
			f.failf(lanePath(l.Lane, "queues"), "%d queues, and an indirection table of %s has %d entries",
				len(l.queues), f.dev.Name, size)
			continue
		}
		f.want(device.RSSTable{
			Dev: f.dev.Name, Context: l.number, Queues: spread(f.tableSize(), l.queues),
		}, device.PartQueueSet, lanePath(l.Lane, "queues"),
			fmt.Sprintf("queue set of lane %s: queues %s", l.Name, device.FormatCPUList(l.queues)))
	}
}

// wantRules steers the members' packets to their lane's queues. It is called last, when these
// queues are ready.
func (f *fit) wantRules(lanes []*deviceLane) {
	if !f.uses(device.PartSteering, ByRules) {
		return
	}
	single := f.uses(device.PartQueueSet, BySingleQueue)
	for _, l := range lanes {
		n := 0
		for i := range l.Members {
			m := &l.Members[i]
			for _, match := range f.rules(m) {
				r := device.Rule{Dev: f.dev.Name, Match: match, Context: l.number}
				why := "packets of lane " + l.Name + " to its queues"
				if single {
					r.Context, r.Queue = 0, l.queues[n%len(l.queues)]
					why = fmt.Sprintf("packets of lane %s to its queue %d", l.Name, r.Queue)
				}
				f.want(r, device.PartSteering, m.Path, why)
				n++
			}
		}
		if single && n < len(l.queues) {
			f.notef("lane %s: %d rules lead to %d of its %d queues: a rule leads to a single queue here, and the "+
				"other queues receive nothing", l.Name, n, n, len(l.queues))
		}
	}
}

// wantNtuple turns on rx-ntuple-filter, which most drivers need for steering rules.
func (f *fit) wantNtuple() {
	const feature = "rx-ntuple-filter"
	if now := f.dev.Features[feature]; f.uses(device.PartSteering, ByRules) && !f.dev.Emulated && !now.Fixed {
		f.wantOn(feature, device.PartQueueSet, "the card takes steering rules")
	}
}

// wantOn turns on a feature, unless it was on before niclane.
func (f *fit) wantOn(feature string, part device.Part, why string) {
	if _, there := f.dev.Features[feature]; there && !f.wasOn(feature) {
		f.want(device.Feature{Dev: f.dev.Name, Name: feature, On: true}, part, "lanes", why)
	}
}

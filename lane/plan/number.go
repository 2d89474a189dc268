// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// number gives the lanes their numbers. A lane keeps the one it has, so that a
// lane that comes or goes before it in the file leaves its traffic alone; a new
// one gets the lowest that no lane has, or had until now, as long as there are
// such.
func (f *fit) number(lanes []*deviceLane) {
	used, was := f.numbers()
	given := map[int]bool{}
	if f.uses(device.PartQueueSet, ByRSSContext) {
		for _, t := range f.dev.RSS {
			if _, ours := f.owned[t.Key()]; !ours {
				given[t.Context] = true // somebody else's
			}
		}
	}
	for _, l := range lanes {
		if n := was[l.Path]; n != 0 && !given[n] {
			l.number, given[n] = n, true
		}
	}
	lowest := func(free func(int) bool) int {
		for n := 1; ; n++ {
			if free(n) {
				return n
			}
		}
	}
	for _, l := range lanes {
		if l.number == 0 {
			l.number = lowest(func(n int) bool { return !given[n] && !used[n] })
			if l.number > f.mostNumbers() {
				l.number = lowest(func(n int) bool { return !given[n] })
			}
			given[l.number] = true
		}
		l.minor = firstLaneMinor + uint16(l.number) - 1
	}
}

// maxContexts is how many RSS contexts are numbered beside the default where the
// card does not say how many it has.
const maxContexts = 63

// mostNumbers is the highest number that the queue sets can have.
func (f *fit) mostNumbers() int {
	most := maxCPULanes
	if f.uses(device.PartQueueSet, ByRSSContext) {
		if most = f.dev.MaxContexts; most == 0 {
			most = maxContexts
		}
	}
	if f.byPriority() {
		return min(most, f.maxPriorityLanes())
	}
	return most
}

// numbers returns the numbers that owned objects of the device have, and which
// lane, by path, has which.
func (f *fit) numbers() (used map[int]bool, was map[string]int) {
	used, was = map[int]bool{}, map[string]int{}
	for _, r := range f.owned {
		n := f.numberOf(r.Last)
		if n == 0 {
			continue
		}
		used[n] = true
		// lanes.NAME, or a key below it
		if key, ok := strings.CutPrefix(r.Cause, "lanes."); ok {
			name, _, _ := strings.Cut(key, ".")
			was[r.Cause[:len("lanes.")+len(name)]] = n
		}
	}
	return used, was
}

// numberOf returns the number of the lane that an object of the device belongs
// to, 0 if it has none.
func (f *fit) numberOf(o device.Object) int {
	switch o := o.(type) {
	case device.RSSTable:
		if o.Dev == f.dev.Name {
			return o.Context
		}
	case device.CPULane:
		if o.Dev == f.dev.Name {
			return o.Lane
		}
	case device.FilterEntry:
		if n := priorityNumber(o.Priority); n != 0 && strings.HasPrefix(o.Filter, "filter/"+f.dev.Name+"/") {
			return n
		}
	case device.CgroupClass:
		return priorityNumber(o.Priority)
	case device.CgroupPriority:
		if o.Dev == f.dev.Name {
			return priorityNumber(o.Priority)
		}
	case device.Class:
		minor, err := strconv.ParseUint(strings.TrimPrefix(o.ID, rootHandle), 16, 16)
		if err == nil && o.Dev == f.dev.Name && minor >= firstLaneMinor {
			return int(minor) - firstLaneMinor + 1
		}
	}
	return 0
}

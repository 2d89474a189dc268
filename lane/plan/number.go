// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// number gives the lanes their numbers. A lane keeps its number, so its traffic is not affected
// if a lane before it in the file is added or removed. A new lane gets the lowest number that is
// free and was not used by the last plan. If that is too high, it gets the lowest free number.
func (f *fit) number(lanes []*deviceLane) {
	used, was := f.numbers()
	given := map[int]bool{}
	if f.uses(device.PartQueueSet, ByRSSContext) {
		for _, t := range f.dev.RSS {
			if _, ours := f.owned[t.Key()]; !ours {
				given[t.Context] = true // made by another program
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

// maxContexts is the assumed number of RSS contexts, without the default one, if the card does
// not report it.
const maxContexts = 63

// mostNumbers is the highest number that a lane can have.
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

// numbers returns the lane numbers that niclane's objects on the device use, and the number of
// each lane by its path.
func (f *fit) numbers() (used map[int]bool, was map[string]int) {
	used, was = map[int]bool{}, map[string]int{}
	for _, r := range f.owned {
		n := f.numberOf(r.Last)
		if n == 0 {
			continue
		}
		used[n] = true
		// Cause is lanes.NAME, or a path below that.
		if key, ok := strings.CutPrefix(r.Cause, "lanes."); ok {
			name, _, _ := strings.Cut(key, ".")
			was[r.Cause[:len("lanes.")+len(name)]] = n
		}
	}
	return used, was
}

// numberOf returns the lane number that an object of the device contains, 0 if none.
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
		if strings.HasPrefix(o.Filter, "filter/"+f.dev.Name+"/") {
			return cmp.Or(o.Lane, priorityNumber(o.Priority))
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

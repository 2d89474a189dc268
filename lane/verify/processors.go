// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// cpus returns the processors to which niclane's XDP program hands the lane's packets. It returns
// nil if that program does not make the lane.
func (t *traffic) cpus(l plan.FittedLane) []int {
	for _, r := range t.a.Owned {
		if c, ok := r.Last.(device.CPULane); ok && c.Dev == l.Device && t.laneOf(c, r.Cause) == l.Name {
			return c.CPUs
		}
	}
	return nil
}

// generic reports whether the device's XDP program runs in the stack (generic mode).
func (t *traffic) generic(dev string) bool {
	return slices.ContainsFunc(t.a.Owned, func(r plan.Record) bool {
		x, ok := r.Last.(device.XDP)
		return ok && x.Dev == dev && x.Mode == "generic"
	})
}

// Arrived reports whether all packets that the stack has put into the cpumap have come out again.
// The caller waits for that; packets that are still missing then are lost. With native XDP, the
// stack sees packets only when they come out, so there is nothing to wait for.
func Arrived(a Applied, w Watched) bool {
	t := &traffic{check: &check{a: a, now: &device.State{}}, w: w}
	if !t.generic(w.Device) {
		return true
	}
	return !slices.ContainsFunc(a.Lanes, func(l plan.FittedLane) bool {
		return l.Device == w.Device && t.cpus(l) != nil && total(w.Handed, l.Name) < total(w.Direct, l.Name)
	})
}

// processors checks that the lane's packets were handed to the lane's processors, and that
// packets of no lane were not. Two lanes may have the same processor.
func (t *traffic) processors(l plan.FittedLane, cpus []int) {
	cells := slices.DeleteFunc(slices.Clone(t.w.Handed), func(c Cell) bool {
		return c.Lane != l.Name && c.Lane != "" && c.Lane != LaneUnread
	})
	handed, direct := total(t.w.Handed, l.Name), total(t.w.Direct, l.Name)
	var lost uint64
	switch {
	case !t.generic(l.Device):
		lost = direct // with native XDP, packets in Direct were not handed to a processor
	case direct > handed:
		lost = direct - handed
	}
	t.place(l, place{part: device.PartSteering, cells: cells, verb: "arrived", in: "on", noun: "processors",
		queues: cpus, unit: "processor", lost: lost,
		foreign: "they wait among the lane's packets, on the lane's processors",
		strayed: "they wait among other packets, or were dropped because the queue to the processor was full"})
}

func total(cells []Cell, lane string) uint64 {
	var n uint64
	for _, c := range cells {
		if c.Lane == lane {
			n += c.Packets
		}
	}
	return n
}

// SPDX-License-Identifier: Apache-2.0

// Package status computes what each lane has and what traffic it has: queues, NAPIs, pollers,
// processors, packets, bytes and drops, since the apply and per second. Its callers read the
// data. If the device does not count something, the package leaves it out and never prints a zero
// for it.
package status

import (
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A Lane is one lane on one device.
type Lane struct {
	plan.FittedLane
	// Members are the lane's members as text, from the function Members.
	Members []string `json:"members,omitempty"`
	// Differs lists differences between the machine and what niclane wrote, with their meaning for
	// the lane.
	Differs []string `json:"differs,omitempty"`
	NAPIs   []NAPI   `json:"napis,omitempty"`
	// Rx and Tx count the lane's queues. They are nil if the device does not count each queue. Tx is
	// also nil if the lane sends by the queue of its HTB class on the card.
	Rx *Traffic `json:"rx,omitempty"`
	Tx *Traffic `json:"tx,omitempty"`
	// ClassTx counts the packets of the lane's HTB class.
	ClassTx *Traffic `json:"classTx,omitempty"`
	// Polled are the lane's packets by what polled them, nil if the driver does not count that.
	Polled *Polled `json:"polled,omitempty"`
	// Backlog is the number of bytes that wait in the class.
	Backlog uint64 `json:"backlogBytes,omitempty"`
	// Departures count the packets that waited for their departure times, nil if the lanes do not share
	// the link by these.
	Departures *Departures `json:"departures,omitempty"`
	// Sent are the rates of the lane's packets in each transmit queue, or in AnyQueue, during the
	// sampling interval.
	Sent []Row `json:"sent,omitempty"`
}

// A NAPI is a NAPI of a lane, with what polls it.
type NAPI struct {
	ID     uint32         `json:"id"`
	Queue  int            `json:"queue"`
	Thread *device.Thread `json:"thread,omitempty"` // nil: no kernel thread
	PID    int            `json:"pid,omitempty"`
	// Poller is niclane's own process that polls the NAPI, nil if there is none.
	Poller *device.PollerState `json:"poller,omitempty"`
	// Driver is the driver's poller of the NAPI's queue, nil if there is none. The NAPI of its first
	// queue polls all of them; the other NAPIs are idle.
	Driver *device.DriverPoller `json:"driver,omitempty"`
}

// A Polled has the received packets since the apply by what polled them, as far as the driver counts them.
type Polled struct {
	BusyPoll uint64 `json:"busyPoll"` // by a socket's busy poll
	NAPI     uint64 `json:"napi"`     // by a NAPI: interrupt, thread or poller
}

// Traffic has counts since the apply, and rates per second during the sampling interval.
type Traffic struct {
	Packets          uint64  `json:"packets"`
	Bytes            uint64  `json:"bytes"`
	Drops            uint64  `json:"drops"`
	PacketsPerSecond float64 `json:"packetsPerSecond"`
	BytesPerSecond   float64 `json:"bytesPerSecond"`
	DropsPerSecond   float64 `json:"dropsPerSecond"`
}

// Departures are counts since the classifier was attached, and what happened during the sampling
// interval. GSO packets count as one.
type Departures struct {
	Waited  uint64 `json:"waited"`
	Marked  uint64 `json:"marked"`
	Dropped uint64 `json:"dropped"`
	// MeanWaitNs is how long a packet that waited did so on average in the interval, in ns; 0: none did.
	MeanWaitNs       float64 `json:"meanWaitNs"`
	WaitedPerSecond  float64 `json:"waitedPerSecond"`
	MarkedPerSecond  float64 `json:"markedPerSecond"`
	DroppedPerSecond float64 `json:"droppedPerSecond"`
}

// A Sample has the counters of one device at three moments.
type Sample struct {
	// Applied are the counters right after the apply. They are zero if not known; the counts are
	// then those since the device exists.
	Applied     device.Counters
	Before, Now device.Counters
	// SentBefore and SentNow count sent packets by lane and queue, like Moment.Sent.
	SentBefore, SentNow map[LaneQueue]device.QueueCounter
}

// Lanes returns the status of lanes. samples are by device.
func Lanes(lanes []plan.FittedLane, st *device.State, samples map[string]Sample) []Lane {
	var out []Lane
	for _, f := range lanes {
		l := Lane{FittedLane: f}
		if d := st.Device(f.Device); d != nil {
			l.NAPIs = napis(d, f.Queues)
		}
		s := samples[f.Device]
		l.Rx = sum(f.Queues, s, func(c device.Counters) []device.QueueCounter { return c.Rx })
		if !byClass(st, f.Device) {
			l.Tx = sum(f.Queues, s, func(c device.Counters) []device.QueueCounter { return c.Tx })
		}
		l.ClassTx, l.Backlog = class(f.Class, s)
		l.Polled = polled(f.Queues, s)
		if f.Departs {
			l.Departures = departures(f.Context, s)
		}
		l.Sent = rates{ns: s.Now.Mono - s.Before.Mono}.passed(f, "sent", s.SentBefore, s.SentNow, lanes)
		out = append(out, l)
	}
	return out
}

// departures returns the counts of the lane with the given number, nil if there are none.
func departures(number int, s Sample) *Departures {
	find := func(c device.Counters) (d device.Departures, ok bool) {
		i := slices.IndexFunc(c.Departures, func(d device.Departures) bool { return d.Lane == number })
		if i < 0 {
			return d, false
		}
		return c.Departures[i], true
	}
	now, ok := find(s.Now)
	if !ok {
		return nil
	}
	before, _ := find(s.Before)
	if now.Waited < before.Waited { // the classifier was attached again
		before = device.Departures{}
	}
	d := &Departures{Waited: now.Waited, Marked: now.Marked, Dropped: now.Dropped}
	if n := now.Waited - before.Waited; n > 0 {
		d.MeanWaitNs = float64(now.WaitNs-before.WaitNs) / float64(n)
	}
	if ns := s.Now.Mono - s.Before.Mono; ns > 0 {
		rate := func(now, before uint64) float64 { return float64(now-before) * 1e9 / float64(ns) }
		d.WaitedPerSecond, d.MarkedPerSecond = rate(now.Waited, before.Waited), rate(now.Marked, before.Marked)
		d.DroppedPerSecond = rate(now.Dropped, before.Dropped)
	}
	return d
}

// byClass reports whether the card has HTB classes. Packets of a lane then do not leave by the
// transmit queues of the lane's channels, and the kernel does not report which queue they use.
// They are counted for the class, or by watching the traffic.
func byClass(st *device.State, dev string) bool {
	d := st.Device(dev)
	return d != nil && slices.ContainsFunc(d.Qdiscs, func(q device.QdiscState) bool {
		return q.Parent == "root" &&
			q.Offload
	})
}

func napis(d *device.Device, queues []int) []NAPI {
	var out []NAPI
	for _, n := range d.NAPIs {
		if slices.Contains(queues, n.Config.Queue) {
			out = append(out, NAPI{ID: n.ID, Queue: n.Config.Queue, Thread: n.Thread, PID: n.PID,
				Poller: d.PollerOf(n.Config.Queue), Driver: d.DriverPoller(n.Config.Queue)})
		}
	}
	slices.SortFunc(out, func(a, b NAPI) int { return a.Queue - b.Queue })
	return out
}

// sum returns the sum of the counters of these queues. It returns nil if none of them has
// counters.
func sum(queues []int, s Sample, of func(device.Counters) []device.QueueCounter) *Traffic {
	total := func(cs []device.QueueCounter) (t device.QueueCounter, some bool) {
		for _, c := range cs {
			if slices.Contains(queues, c.Queue) {
				t.Packets, t.Bytes, t.Drops, some = t.Packets+c.Packets, t.Bytes+c.Bytes, t.Drops+c.Drops, true
			}
		}
		return t, some
	}
	now, some := total(of(s.Now))
	if !some {
		return nil
	}
	applied, _ := total(of(s.Applied))
	before, _ := total(of(s.Before))
	return traffic(applied, before, now, s.Now.Mono-s.Before.Mono)
}

// polled returns the packets of these queues by what polled them, since the apply, nil if the driver does
// not count them.
func polled(queues []int, s Sample) (p *Polled) {
	total := func(c device.Counters) (t Polled, some bool) {
		for _, x := range c.Polled {
			if slices.Contains(queues, x.Queue) {
				t.BusyPoll, t.NAPI, some = t.BusyPoll+x.BusyPoll, t.NAPI+x.NAPI, true
			}
		}
		return t, some
	}
	now, some := total(s.Now)
	if !some {
		return nil
	}
	applied, _ := total(s.Applied)
	if now.BusyPoll < applied.BusyPoll || now.NAPI < applied.NAPI { // they were reset
		return &now
	}
	return &Polled{now.BusyPoll - applied.BusyPoll, now.NAPI - applied.NAPI}
}

func class(id string, s Sample) (*Traffic, uint64) {
	if id == "" {
		return nil, 0
	}
	find := func(c device.Counters) (q device.QueueCounter, backlog uint64, ok bool) {
		for _, x := range c.Classes {
			if x.ID == id {
				return device.QueueCounter{Packets: x.Packets, Bytes: x.Bytes, Drops: x.Drops}, x.Backlog, true
			}
		}
		return q, 0, false
	}
	now, backlog, ok := find(s.Now)
	if !ok {
		return nil, 0
	}
	applied, _, _ := find(s.Applied)
	before, _, _ := find(s.Before)
	return traffic(applied, before, now, s.Now.Mono-s.Before.Mono), backlog
}

// traffic returns counts since the apply and rates. If a counter is lower than before, it was
// reset and counts from zero.
func traffic(applied, before, now device.QueueCounter, ns int64) *Traffic {
	since := func(then, now uint64) uint64 {
		if now < then {
			return now
		}
		return now - then
	}
	rate := func(then, now uint64) float64 {
		if ns <= 0 {
			return 0
		}
		return float64(since(then, now)) * 1e9 / float64(ns)
	}
	return &Traffic{
		Packets: since(applied.Packets, now.Packets), Bytes: since(applied.Bytes, now.Bytes),
		Drops:            since(applied.Drops, now.Drops),
		PacketsPerSecond: rate(before.Packets, now.Packets), BytesPerSecond: rate(before.Bytes, now.Bytes),
		DropsPerSecond: rate(before.Drops, now.Drops),
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/traffic/count"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/status"
	"github.com/niclane/niclane/lane/verify"
)

// Sent packets are counted in two ways.
//
// The classifier always counts the packets of each lane by transmit queue. It knows the queue if it
// chooses the queue, or if the queue follows from the socket's receive queue. Otherwise the queue
// is
// unknown. This costs almost nothing.
//
// With --sent, a program at a tracepoint counts the real transmit queues. It runs for every
// packet of the host, which costs each packet time: docs/results/2026-11-mechanisms.md has the
// figures.

// A sentCounter counts sent packets by device, lane and transmit queue. Packets that match no
// lane count for the default lane.
type sentCounter interface {
	read() (map[string]map[status.LaneQueue]device.QueueCounter, error)
	close()
}

// countSent starts to count sent packets. If exact is true, it counts at the tracepoint; this needs
// st, the devices' state. Otherwise it reads the classifier's counters. notCounted says what cannot
// be counted, and why. Lanes by control group have no classifier, so nothing is counted.
func (a *app) countSent(js []*journal.Journal, st *device.State, devices []string, exact bool) (s sentCounter,
	notCounted []string, err error) {
	var senders senders
	var classified classifierCounts
	for _, j := range js {
		applied := a.Engine().Applied(j)
		var done []string
		for _, l := range applied.Lanes {
			if !slices.Contains(devices, l.Device) || slices.Contains(done, l.Device) {
				continue
			}
			done = append(done, l.Device)
			if !exact {
				classified.add(applied, l.Device)
				continue
			}
			d := st.Device(l.Device)
			if d == nil {
				continue
			}
			w := &deviceWatch{applied: applied, device: l.Device}
			if w.open(d, count.OpenTransmit); w.err != nil {
				notCounted = append(notCounted, fmt.Sprintf("packets that leave %s are not counted by lane and "+
					"queue: %v: %s",
					l.Device, w.err, cannotWatch(w.err)))
				continue
			}
			senders = append(senders, w)
		}
	}
	if exact {
		return senders, notCounted, nil
	}
	if len(classified.countings) == 0 {
		return senders, nil, nil
	}
	classified.tc, err = tc.Open()
	if err != nil {
		return nil, nil, err
	}
	classified.bpf = bpf.New(classified.tc)
	return &classified, nil, nil
}

// classifierCounts reads the counters of the classifiers.
type classifierCounts struct {
	countings map[string][]verify.Counting // by device
	tc        *tc.Client
	bpf       *bpf.Client
}

func (c *classifierCounts) add(applied verify.Applied, dev string) {
	if cs := verify.Countings(applied, dev); len(cs) > 0 {
		if c.countings == nil {
			c.countings = map[string][]verify.Counting{}
		}
		c.countings[dev] = cs
	}
}

func (c *classifierCounts) close() {
	_ = c.bpf.Close() // they only read, so an error loses nothing
	_ = c.tc.Close()
}

func (c *classifierCounts) read() (map[string]map[status.LaneQueue]device.QueueCounter, error) {
	out := map[string]map[status.LaneQueue]device.QueueCounter{}
	for dev, cs := range c.countings {
		var rows []int
		for _, n := range cs {
			if !slices.Contains(rows, n.Row) {
				rows = append(rows, n.Row)
			}
		}
		counted, err := c.bpf.SentCounters(dev, rows)
		if err != nil {
			return nil, err
		}
		out[dev] = map[status.LaneQueue]device.QueueCounter{}
		for _, n := range counted {
			at := status.LaneQueue{Lane: verify.CountedAs(cs, n.Row, n.Queue), Queue: status.AnyQueue}
			i := slices.IndexFunc(cs, func(c verify.Counting) bool { return c.Lane == at.Lane })
			if i < 0 {
				continue
			}
			if cs[i].ByQueue && n.Queue != bpf.UnknownQueue {
				at.Queue = n.Queue
			}
			add(out[dev], at, n.Packets, n.Bytes)
		}
	}
	return out, nil
}

func add(to map[status.LaneQueue]device.QueueCounter, at status.LaneQueue, packets, bytes uint64) {
	sum := to[at]
	sum.Packets += packets
	sum.Bytes += bytes
	to[at] = sum
}

// senders counts sent packets at the tracepoint, for each device.
type senders []*deviceWatch

func (ss senders) close() { _ = watching(ss).close() } // the watch only reads, so an error loses nothing

func (ss senders) read() (map[string]map[status.LaneQueue]device.QueueCounter, error) {
	out := map[string]map[status.LaneQueue]device.QueueCounter{}
	for _, w := range ss {
		cells, err := w.watcher.Sent()
		if err != nil {
			return nil, err
		}
		out[w.device] = map[status.LaneQueue]device.QueueCounter{}
		for _, c := range cells {
			at := status.LaneQueue{Lane: w.name(c.Lane), Queue: c.Column}
			if at.Lane == "" || at.Lane == verify.LaneUnread || at.Lane == verify.LaneUnshaped {
				at.Lane = intent.DefaultLane
			}
			add(out[w.device], at, c.Packets, c.Bytes)
		}
	}
	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/intent"
	"github.com/niclane/niclane/internal/watch"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/status"
	"github.com/niclane/niclane/verify"
)

// senders count what leaves devices, by lane and transmit queue, for as long as
// somebody looks. The queue is known only to what sees every packet of the host
// (a tracepoint: at clsact and TCX it is not chosen yet), and being seen costs
// each of them: docs/realisations.md has the figures.
type senders []*watched

// countSent begins to count. What cannot be counted is left out, with the
// reason.
func (a *app) countSent(js []*journal.Journal, st *device.State, devices []string) (ss senders, notCounted []string) {
	for _, j := range js {
		applied := a.appliedBy(j)
		var done []string
		for _, l := range applied.Lanes {
			d := st.Device(l.Device)
			if d == nil || !slices.Contains(devices, l.Device) || slices.Contains(done, l.Device) {
				continue
			}
			done = append(done, l.Device)
			w := &watched{applied: applied, device: l.Device}
			if w.open(d, watch.OpenTransmit); w.err != nil {
				notCounted = append(notCounted, fmt.Sprintf("what leaves %s is not counted by lane and queue: %v: %s", l.Device, w.err, cannotWatch(w.err)))
				continue
			}
			ss = append(ss, w)
		}
	}
	return ss, notCounted
}

func (ss senders) close() { _ = watching(ss).close() } // nothing was written

// read returns what has left so far, by device, lane and queue. What no lane
// matches is the default lane's.
func (ss senders) read() (map[string]map[status.LaneQueue]device.QueueCounter, error) {
	out := map[string]map[status.LaneQueue]device.QueueCounter{}
	for _, w := range ss {
		cells, err := w.watcher.Sent()
		if err != nil {
			return nil, err
		}
		counted := map[status.LaneQueue]device.QueueCounter{}
		for _, c := range cells {
			at := status.LaneQueue{Lane: w.name(c.Lane), Queue: c.Column}
			if at.Lane == "" || at.Lane == verify.LaneUnread {
				at.Lane = intent.DefaultLane
			}
			sum := counted[at]
			sum.Packets += c.Packets
			sum.Bytes += c.Bytes
			counted[at] = sum
		}
		out[w.device] = counted
	}
	return out, nil
}

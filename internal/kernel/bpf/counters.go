// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// maxCounted is MAX_QUEUES: queues beyond are counted at the last.
const maxCounted = 64

// counters is struct counters of count.h: of one lane, by queue.
type counters struct {
	Queue [maxCounted]struct{ Packets, Bytes uint64 }
}

// A LaneCounter says what of a lane arrived in a receive queue since the XDP
// program was attached. Lane 0 is what no lane matched. Bytes are from the
// Ethernet header on, as XDP sees them: without a VLAN tag that the card has
// removed, and one packet for what generic receive offload joined before it.
type LaneCounter struct {
	Dev     string `json:"dev"`
	Lane    int    `json:"lane"`
	Queue   int    `json:"queue"` // 63 stands for all from there on
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// XDPCounters returns what niclane's XDP program on a device has counted, by
// lane and queue, without what is zero; nil if the program is not there.
func (c *Client) XDPCounters(dev string) ([]LaneCounter, error) {
	m, err := c.openXDPAnew(dev)
	if m == nil || err != nil {
		return nil, err
	}
	return m.counted()
}

func (m *xdpMaps) counted() ([]LaneCounter, error) {
	var out []LaneCounter
	for l := range maxLanes {
		sums, err := countedIn(m.counters, l)
		if err != nil {
			return nil, fmt.Errorf("counters of lane %d of %s: %w", l, m.dev, err)
		}
		for q, sum := range sums {
			if sum.Packets > 0 {
				out = append(out, LaneCounter{Dev: m.dev, Lane: l, Queue: q, Packets: sum.Packets, Bytes: sum.Bytes})
			}
		}
	}
	return out, nil
}

// maxRows is MAX_ROWS of egress.c.
const maxRows = 80

// UnknownQueue is where Queue of a SentCounter is not known.
const UnknownQueue = -1

// A SentCounter says what niclane's classifier gave to one lane since it was
// attached, by the transmit queue that it chose, or else by the one that goes with
// the receive queue of the packet's socket: whether that is where the packet leaves,
// the caller has to know. Packets are as on the wire (segments, not GSO
// units), bytes those of the GSO units, and what a qdisc drops later is counted.
type SentCounter struct {
	// Row is the lower half of the lane's priority (device.FilterEntry); 0 is
	// what has none: no lane's, or of lanes that are queues alone.
	Row     int    `json:"row"`
	Queue   int    `json:"queue"` // UnknownQueue also for all from 63 on
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// SentCounters returns what niclane's classifier on a device has counted in rows,
// without what is zero; nil if there is none, or one of a version that does not
// count. Rows that the classifier has not are empty: it has 80.
func (c *Client) SentCounters(dev string, rows []int) ([]SentCounter, error) {
	var out []SentCounter
	err := c.eachFilter(dev, func(m *maps) error {
		counted, err := m.counted(rows)
		out = append(out, counted...)
		return err
	})
	return out, err
}

func (m *maps) counted(rows []int) ([]SentCounter, error) {
	var out []SentCounter
	for _, row := range rows {
		if m.sent == nil || row < 0 || row >= maxRows {
			continue
		}
		sums, err := countedIn(m.sent, row)
		if err != nil {
			return nil, fmt.Errorf("%s: counters of row %d: %w", m.filter.Key(), row, err)
		}
		for q, sum := range sums {
			if sum.Packets == 0 {
				continue
			}
			if q == maxCounted-1 {
				q = UnknownQueue
			}
			out = append(out, SentCounter{Row: row, Queue: q, Packets: sum.Packets, Bytes: sum.Bytes})
		}
	}
	return out, nil
}

// countedIn adds what all processors counted in a row, by queue.
func countedIn(m *ebpf.Map, row int) (sums [maxCounted]struct{ Packets, Bytes uint64 }, err error) {
	var cpus []counters
	if err := m.Lookup(uint32(row), &cpus); err != nil {
		return sums, err
	}
	for i := range cpus {
		for q, n := range cpus[i].Queue {
			sums[q].Packets += n.Packets
			sums[q].Bytes += n.Bytes
		}
	}
	return sums, nil
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// maxCounted is MAX_QUEUES of count.h. The last counter also counts all higher queues.
const maxCounted = 64

// counters is struct counters of count.h: the counters of one lane, by queue.
type counters struct {
	Queue [maxCounted]struct{ Packets, Bytes uint64 }
}

// A LaneCounter counts the packets of a lane that arrived in a receive queue since the
// XDP program was attached. Lane 0 counts packets that matched no lane. Bytes start at
// the Ethernet header, as XDP sees them: without a VLAN tag that the card has removed.
// Packets that generic receive offload joined before XDP count as one.
type LaneCounter struct {
	Dev     string `json:"dev"`
	Lane    int    `json:"lane"`
	Queue   int    `json:"queue"` // 63 also counts all higher queues
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// XDPCounters returns the counters of niclane's XDP program on a device, by lane and
// queue, without those that are zero. It returns nil if the program is not attached.
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

// UnknownQueue is the Queue of a SentCounter if the queue is not known.
const UnknownQueue = -1

// A SentCounter counts the packets that niclane's classifier gave to one lane since it
// was attached. Queue is the transmit queue that the classifier chose. If it chose none,
// Queue is the receive queue of the packet's socket, and the caller must know whether XPS
// maps that to a transmit queue. Packets counts segments as on the wire; Bytes counts the
// bytes of GSO packets, which are not yet divided into segments. Both include packets that a
// qdisc drops later.
type SentCounter struct {
	// Row is the lower half of the lane's priority (device.FilterEntry). Row 0 counts the
	// packets of no lane, and those of lanes that have queues but no priority.
	Row     int    `json:"row"`
	Queue   int    `json:"queue"` // UnknownQueue: not known, or 63 and higher
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// SentCounters returns the counters of niclane's classifier on a device, in the given rows,
// without those that are zero. It returns nil if there is no classifier, or if the
// classifier's version does not count. The classifier has rows 0 to 79; other rows are empty.
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

// countedIn returns the sums over all CPUs of one row, by queue.
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

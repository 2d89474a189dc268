// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// maxCounted is MAX_QUEUES: receive queues beyond are counted at the last.
const maxCounted = 64

// counters is struct counters of ingress.c: of one lane, by receive queue.
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
		var cpus []counters
		if err := m.counters.Lookup(uint32(l), &cpus); err != nil {
			return nil, fmt.Errorf("counters of lane %d of %s: %w", l, m.dev, err)
		}
		for q := range maxCounted {
			sum := LaneCounter{Dev: m.dev, Lane: l, Queue: q}
			for i := range cpus {
				sum.Packets += cpus[i].Queue[q].Packets
				sum.Bytes += cpus[i].Queue[q].Bytes
			}
			if sum.Packets > 0 {
				out = append(out, sum)
			}
		}
	}
	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"github.com/cilium/ebpf"
)

// A Counter counts the packets of one queue since the card was made. It counts packets as they are
// on the wire: segments, not GSO units. Bytes include the Ethernet headers.
type Counter struct {
	Packets, Bytes uint64
}

// Stats returns the counters of the receive and transmit queues. They also count packets that a
// full queue then dropped, because cards count before the ring. The dropped packets are in the
// port's tx_dropped (package lab).
func (c *Card) Stats() (rx, tx []Counter, err error) {
	if rx, err = c.counters(c.maps["card_rx_queues"]); err != nil {
		return nil, nil, err
	}
	tx, err = c.counters(c.maps["card_tx_queues"])
	return rx, tx, err
}

func (c *Card) counters(m *ebpf.Map) ([]Counter, error) {
	out := make([]Counter, c.info.Queues)
	for q := range out {
		var perCPU []Counter
		if err := m.Lookup(uint32(q), &perCPU); err != nil {
			return nil, err
		}
		for _, x := range perCPU {
			out[q].Packets += x.Packets
			out[q].Bytes += x.Bytes
		}
	}
	return out, nil
}

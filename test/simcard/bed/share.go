// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"math"
	"net"
	"testing"
)

// Share floods the ports until the queues have sent total bytes. It returns how many bytes each
// queue sent. The first part, which has bursts, does not count.
func Share(t *testing.T, ports []uint16, queues int, total uint64, setup func(*net.UDPConn)) []uint64 {
	t.Helper()
	return ShareOn(t, Dial(t, ports, setup), queues, total)
}

// ShareOn is Share on sockets, which it closes.
func ShareOn(t *testing.T, conns []*net.UDPConn, queues int, total uint64) []uint64 {
	t.Helper()
	start := Stats(t)
	var before map[string]uint64
	FloodOn(t, conns, func() bool {
		if before == nil {
			if Sum(PerQueue(t, start, "tx_queue_%d_bytes", queues)) > total/4 {
				before = Stats(t)
			}
			return false
		}
		return Sum(PerQueue(t, before, "tx_queue_%d_bytes", queues)) > total
	})
	return PerQueue(t, before, "tx_queue_%d_bytes", queues)
}

// Ratios fails unless the queues sent bytes in the ratios of the rates in want.
func Ratios(t *testing.T, what string, got []uint64, want ...float64) {
	t.Helper()
	all, rates := float64(Sum(got[:len(want)])), 0.0
	for _, w := range want {
		rates += w
	}
	for i, w := range want {
		if part := float64(got[i]) / all; !(math.Abs(part-w/rates) <= 0.06) { // also catches NaN: no queue has sent
			t.Errorf("%s: queue %d sent %.2f of %v, want %.2f", what, i, part, got, w/rates)
		}
	}
}

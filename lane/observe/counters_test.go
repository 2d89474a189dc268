// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
)

func TestVethDrops(t *testing.T) {
	got := []device.QueueCounter{{Queue: 0, Packets: 5}, {Queue: 1, Packets: 6}}
	vethDrops(got, map[string]uint64{"rx_queue_1_drops": 3, "rx_queue_1_xdp_drops": 9, "rx_queue_11_drops": 8})
	want := []device.QueueCounter{{Queue: 0, Packets: 5}, {Queue: 1, Packets: 6, Drops: 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPolled reads both spellings of the counters of Intel's own driver.
func TestPolled(t *testing.T) {
	got := polled(map[string]uint64{
		"rx_10.pkt_busy_poll": 1, "rx_10.pkt_not_busy_poll": 2,
		"rx_q-2_pkt_busy_poll": 3, "rx_q-2_pkt_not_busy_poll": 4,
		"tx_10.pkt_busy_poll": 9, "rx_10.bp_no_data_pkt": 9, "rx_10_packets": 9,
		"rx_99999999999999999999.pkt_busy_poll": 9,
	})
	want := []device.PolledCounter{{Queue: 2, BusyPoll: 3, NAPI: 4}, {Queue: 10, BusyPoll: 1, NAPI: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := polled(map[string]uint64{"rx_queue_0_packets": 1}); got != nil {
		t.Errorf("a driver without them: %+v", got)
	}
}

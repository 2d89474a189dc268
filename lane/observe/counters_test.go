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

// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestDriverPollers: the driver polls a lane's queues, two at a time, by the
// parameters that Intel's own ice has.
func TestDriverPollers(t *testing.T) {
	h := plug(t, strings.Replace(classLanes, "queues: 4\n",
		"queues: 4\n    poller: busy\n    pollers: 2\n    poller-timeout: 500\n", 1), ice...)
	before := bed.Dump(t)
	h.applied("name tc1_qps_per_poller value 2", "name tc1_poller_timeout value 500", "name tc1_inline_fd value true")
	stats := bed.Stats(t)
	var flows []bed.Flow
	for i := range uint16(256) { // whatever the boot's key, see TestChannels
		flows = append(flows, bed.In(1024+i*251, 6379))
	}
	bed.Send(t, 1, flows...)
	received, interrupts := bed.PerQueue(t, stats, "rx_queue_%d_packets", 8),
		bed.PerQueue(t, stats, "queue_%d_interrupts", 8)
	for q := 2; q < 6; q++ {
		if received[q] == 0 || (interrupts[q] > 0) != (q%2 == 0) {
			t.Errorf("queue %d: received %d, interrupts %d; want the even ones to have all", q, received[q],
				interrupts[q])
		}
	}
	h.restored(before)
	if out := bed.Sh(t, "devlink dev param show platform/simcard.0 name tc1_qps_per_poller"); strings.Contains(out,
		"value 2") {
		t.Errorf("after rollback: %s", out)
	}
}

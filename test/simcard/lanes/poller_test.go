// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestDriverPollers checks that the driver itself polls a lane's queues, two with each NAPI. The
// parameters for this are those of Intel's own ice driver.
func TestDriverPollers(t *testing.T) {
	h := plug(t, strings.Replace(classLanes, "queues: 4\n",
		"queues: 4\n    poller: busy\n    pollers: 2\n    poller-timeout: 500\n", 1), ice...)
	before := bed.Dump(t)
	h.applied("name tc1_qps_per_poller value 2", "name tc1_poller_timeout value 500", "name tc1_inline_fd value true")
	bed.PolledInPairs(t, 6379, 2, 5)
	h.restored(before)
	if out := bed.Sh(t, "devlink dev param show platform/simcard.0 name tc1_qps_per_poller"); strings.Contains(out,
		"value 2") {
		t.Errorf("after rollback: %s", out)
	}
}

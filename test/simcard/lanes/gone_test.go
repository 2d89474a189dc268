// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestCardGone removes the card while it has lanes. niclane must not prevent this, and rollback
// must accept that its objects no longer exist.
func TestCardGone(t *testing.T) {
	for _, c := range []struct {
		name, lanes string
		params      []string
	}{
		{"contexts", twoLanes, []string{"queues=8", "channels=3"}},
		{"classes", classLanes, ice},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := plug(t, c.lanes, c.params...)
			h.niclane(0, "apply", h.lanes)
			bed.Unplug(t)
			h.niclane(0, "rollback")
		})
	}
}

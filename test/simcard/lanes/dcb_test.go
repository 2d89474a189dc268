// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// TestTrust: probe says what a card trusts, and the priorities and traffic classes that it is told by
// another program (dcb of iproute2).
func TestTrust(t *testing.T) {
	h := plug(t, twoLanes, "queues=8", "channels=8", "dcb=1")
	bed.Sh(t, "dcb app add dev sim0 dscp-prio EF:5 8:1 default-prio 2")
	bed.Sh(t, "dcb ets set dev sim0 prio-tc 5:3 1:1")
	out := h.niclane(0, "probe", "sim0")
	trust := "trusts dscp, pcp; "
	var name unix.Utsname
	must.Do(t, unix.Uname(&name))
	if strings.HasPrefix(unix.ByteSliceToString(name.Release[:]), "6.1.") {
		trust = "the driver does not say what it trusts; "
	}
	bed.Says(t, out, "dcb         "+trust+"priorities by DSCP: cs1 → 1, ef → 5; traffic classes of priorities 0 to 7: "+
		"0 1 0 0 0 3 0 0")
	bed.Says(t, h.niclane(0, "probe", "sim0", "--json"), `"selector": "ethtype"`)
	bed.Sh(t, "dcb app flush dev sim0")
	bed.Says(t, h.niclane(0, "probe", "sim0"), "dcb         "+trust+"traffic classes of priorities 0 to 7: ")
}

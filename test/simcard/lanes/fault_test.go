// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestFaults makes each call that configures the card fail, one after the other. apply must undo
// its changes and say so.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, lanes string
		params      []string
	}{
		{"contexts", twoLanes, []string{"queues=8", "channels=3", "rules=16"}},
		{"classes", classLanes, ice},
		{"htb", htbLanes, mlx5},
		{"departures", strings.Replace(edtLanes, "  force: {mapper: queue-mapping}\n", "", 1),
			[]string{"queues=4", "channels=2", "rules=16", "speed=100"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := plug(t, c.lanes, c.params...)
			before := bed.Dump(t)
			calls := calls(t)
			h.niclane(0, "apply", h.lanes)
			n := calls()
			h.restored(before)
			if n < 5 {
				t.Fatalf("apply made %d calls of the card", n)
			}
			failed := 0
			for i := 1; i <= n; i++ {
				bed.Param(t, "fail_in", strconv.Itoa(i))
				code, out := h.run("apply", h.lanes)
				bed.Param(t, "fail_in", "0")
				switch {
				case code == 0: // no failure of apply: the failed call was part of a probe
					h.niclane(0, "rollback")
				case code != 1 || !strings.Contains(out, "the machine is as it was before"):
					t.Fatalf("call %d failed, and apply ended with %d: %s", i, code, out)
				default:
					failed++
				}
				same(t, fmt.Sprintf("after call %d of %d failed", i, n), before)
				if t.Failed() {
					return
				}
			}
			if failed < n/2 {
				t.Errorf("%d of %d failures of the card were apply's", failed, n)
			}
		})
	}
}

// calls returns a function that returns how many configuring calls the card has had since then.
func calls(t *testing.T) func() int {
	t.Helper()
	read := func() int {
		n, err := strconv.Atoi(bed.Read(t, "/sys/module/simcard/parameters/calls"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	start := read()
	return func() int { return read() - start }
}

// TestNoShrink tests a card that cannot reduce its channels. rollback must report what is left, and
// finish when the card can.
func TestNoShrink(t *testing.T) {
	h := plug(t, twoLanes, "queues=8", "channels=2")
	before := bed.Dump(t)
	h.niclane(0, "apply", h.lanes)
	bed.Param(t, "no_shrink", "1")
	bed.Says(t, h.niclane(1, "rollback"), "channels/sim0")
	bed.Param(t, "no_shrink", "0")
	h.restored(before)
	// A foreign rule now uses a channel that niclane added.
	h.niclane(0, "apply", h.lanes)
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 9 action 4 loc 3")
	bed.Says(t, h.niclane(1, "rollback"), "rule 3 (udp4,port=9, queue 4)")
	bed.Sh(t, "ethtool -N sim0 delete 3")
	h.restored(before)
}

// TestForgets checks a card that loses all settings when its link goes down. verify must report
// them as drift, and apply must make them again.
func TestForgets(t *testing.T) {
	h := plug(t, twoLanes, "queues=8", "channels=8")
	before := bed.Dump(t)
	h.niclane(0, "apply", h.lanes)
	bed.Param(t, "forgets", "1")
	bed.Sh(t, "ip link set sim0 down")
	bed.Sh(t, "ip link set sim0 up")
	bed.Param(t, "forgets", "0")
	bed.Says(t, h.niclane(3, "verify", "--for", "0"), "rule/sim0/")
	h.niclane(0, "apply", h.lanes)
	h.niclane(0, "verify", "--for", "0")
	h.restored(before)
}

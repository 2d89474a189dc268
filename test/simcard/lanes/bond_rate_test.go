// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestBondRates checks that the slaves of a bond share a lane's guarantee. While a slave is down,
// the others get its part. A slave that was removed no longer counts.
func TestBondRates(t *testing.T) {
	bed.Guest(t) // a guest is needed because Debian's kernel has bonds
	h := &host{t: t, dir: t.TempDir()}
	const rates = "globals: {bond: bond9, link-rate: 1gbit, force: {queue-set: shared, bandwidth: htb}}\nlanes:\n  web: {queues: 1, " +
		"ports: [80], guarantee: 400mbit}\n"
	h.write(rates)
	bond(t, "balance-xor")
	promised := func(dev, rate string) {
		t.Helper()
		bed.Says(t, bed.Sh(t, "tc class show dev "+dev), "class htb 1:10", "rate "+rate+" ")
	}
	bothPromised := func() {
		t.Helper()
		promised("x0", "200Mbit")
		promised("x1", "200Mbit")
	}
	h.niclane(0, "apply", h.lanes)
	bothPromised()
	h.niclane(0, "plan", h.lanes)

	bed.Sh(t, "ip link set x1 nomaster")
	h.niclane(3, "verify", "--for", "0")
	h.niclane(0, "apply", h.lanes)
	promised("x0", "400Mbit")
	h.niclane(0, "verify", "--for", "0")

	bed.Sh(t, "ip link set x1 down")
	bed.Sh(t, "ip link set x1 master bond9")
	h.niclane(0, "apply", h.lanes)
	bothPromised()

	// A slave whose link is down carries nothing, so the other slave gets its part. The bond checks
	// links every 100 ms.
	link := func(to string) {
		t.Helper()
		bed.Sh(t, "ip link set y1 "+to)
		bed.Until(t, "x1 "+to, func() bool {
			return strings.TrimSpace(bed.Read(t,
				"/sys/class/net/x1/bonding_slave/mii_status")) == to
		})
	}
	link("down")
	bed.Says(t, h.niclane(3, "verify", "--for", "0"), "bond9 sends by x0 and x1")
	h.niclane(0, "apply", h.lanes)
	promised("x0", "400Mbit")
	promised("x1", "200Mbit")
	h.niclane(0, "verify", "--for", "0")
	link("up")
	h.niclane(3, "verify", "--for", "0")
	h.niclane(0, "apply", h.lanes)
	bothPromised()

	// A watch must do the same without a command.
	said, end := h.watch()
	for i, step := range []struct{ link, rate string }{{"down", "400Mbit"}, {"up", "200Mbit"}} {
		bed.Sh(t, "ip link set y1 "+step.link)
		bed.Until(t, "the watch to share out anew", func() bool {
			return strings.Count(said(),
				"repaired bond9 bond/bond9/rates") > i
		})
		promised("x0", step.rate)
	}
	end()
	promised("x1", "200Mbit")

	// If the ceilings are above the rates of the links, they do not depend on the number of slaves.
	h.niclane(0, "rollback")
	h.write("globals: {bond: bond9, force: {queue-set: shared, bandwidth: htb}}\nlanes:\n  web: {queues: 1, ports: [80], ceiling: " +
		"30gbit}\n")
	h.niclane(0, "apply", h.lanes)
	link("down")
	h.niclane(3, "verify", "--for", "0")
	bed.Says(t, h.niclane(0, "apply", h.lanes), "nothing to do")
	h.niclane(0, "verify", "--for", "0")
	link("up")
	h.niclane(0, "rollback")
	h.write(rates)
	h.niclane(0, "apply", h.lanes)

	bed.Sh(t, "ip link del x1")
	h.niclane(3, "verify", "--for", "0")
	h.niclane(0, "apply", h.lanes)
	promised("x0", "400Mbit")
	if out := h.niclane(0, "verify", "--for", "0"); strings.Contains(out, "x1") {
		t.Errorf("verify goes on about the one that is gone: %s", out)
	}
	h.niclane(0, "rollback")
	if out := bed.Sh(t, "tc qdisc show dev x0"); strings.Contains(out, "htb") {
		t.Errorf("after rollback: %s", out)
	}
}

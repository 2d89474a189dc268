// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestBondRates: the slaves of a bond share what a lane is promised; of one that
// leaves the others have the part, until it is back; one that vanishes is forgotten.
func TestBondRates(t *testing.T) {
	bed.Guest(t) // a bond of Debian's kernel
	h := &host{t: t, dir: t.TempDir()}
	h.write("globals: {bond: bond9, link-rate: 1gbit, force: {queue-set: shared}}\nlanes:\n  web: {queues: 1, ports: [80], guarantee: 400mbit}\n")
	bed.Sh(t, "ip link add bond9 type bond mode balance-xor miimon 100")
	t.Cleanup(func() { bed.Sh(t, "ip link del bond9") })
	for _, n := range []string{"0", "1"} {
		bed.Sh(t, "ip link add x"+n+" numrxqueues 4 numtxqueues 4 type veth peer name y"+n+" numrxqueues 4 numtxqueues 4")
		bed.Sh(t, "ip link set y"+n+" up")
		bed.Sh(t, "ip link set x"+n+" master bond9")
	}
	t.Cleanup(func() { bed.Sh(t, "ip link del x0") })
	bed.Sh(t, "ip link set bond9 up")
	promised := func(dev, rate string) {
		t.Helper()
		if out := bed.Sh(t, "tc class show dev "+dev); !strings.Contains(out, "class htb 1:10") || !strings.Contains(out, "rate "+rate+" ") {
			t.Errorf("%s: want lane web to have %s:\n%s", dev, rate, out)
		}
	}
	h.niclane(0, "apply", h.lanes)
	promised("x0", "200Mbit")
	promised("x1", "200Mbit")
	h.niclane(0, "plan", h.lanes)

	bed.Sh(t, "ip link set x1 nomaster")
	h.niclane(3, "verify", "--for", "0")
	h.niclane(0, "apply", h.lanes)
	promised("x0", "400Mbit")
	h.niclane(0, "verify", "--for", "0")

	bed.Sh(t, "ip link set x1 down")
	bed.Sh(t, "ip link set x1 master bond9")
	h.niclane(0, "apply", h.lanes)
	promised("x0", "200Mbit")
	promised("x1", "200Mbit")

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

// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// rateLanes is a lanes file whose lanes send to two ports at the other end of the wire. The rates
// are low, because the guest is slow. The tests compare ratios.
const rateLanes = `
globals:
  dev: sim0
  queues: 1
lanes:
  a:
    queues: 1
    protocol: udp
    remote-ports: [5001]
    ceiling: 1mbit
  b:
    queues: 1
    protocol: udp
    remote-ports: [5002]
    ceiling: 3mbit
`

// enough is the number of bytes after which a ratio is computed.
const enough = 300_000

// shares fails unless the lanes on queues 1 and 2 send in the ratio 1 : 3.
func shares(t *testing.T, what string) {
	t.Helper()
	ports := []uint16{5001, 5002}
	bed.Sink(t, ports...)
	got := bed.Share(t, ports, 3, enough, nil)
	bed.Ratios(t, what, got[1:], 1, 3)
	if got[0] > enough/20 {
		t.Errorf("%s: the default lane's queue sent %d bytes", what, got[0])
	}
}

// force returns rateLanes with forced mechanisms. XPS cannot be used here: with it, a flow that has
// received nothing sends on the default lane's queues. So the classifier must choose the queue.
func force(ways string) string {
	return strings.Replace(rateLanes, "  queues: 1\nlanes",
		"  queues: 1\n  force: {mapper: queue-mapping"+ways+"}\nlanes", 1)
}

// TestShaper checks that the card enforces the lanes' ceilings by net-shaper.
func TestShaper(t *testing.T) {
	bed.NotOn(t, "6.1.", "6.12.")
	h := plug(t, force(""), "queues=3", "channels=3", "burst_us=100000")
	before := bed.Dump(t)
	h.applied("net-shaper")
	shares(t, "net-shaper")
	h.restored(before)
}

// TestMaxrate checks that the card enforces the ceilings by a rate for each queue. niclane uses
// this if the card has no net-shaper, or if tx-maxrate is forced.
func TestMaxrate(t *testing.T) {
	h := plug(t, force(", bandwidth: tx-maxrate"), "queues=3", "channels=3", "burst_us=100000")
	before := bed.Dump(t)
	h.applied("tx_maxrate")
	shares(t, "tx_maxrate")
	h.restored(before)
}

// TestClassRates checks that the card's traffic classes have the lanes' ceilings.
func TestClassRates(t *testing.T) {
	h := plug(t, rateLanes, "driver=ice", "queues=3", "channels=3", "contexts=1", "pow2=1", "burst_us=100000")
	before := bed.Dump(t)
	h.applied("max_rate 0bit 1000000bit 3000000bit")
	shares(t, "bw_rlimit")
	h.restored(before)
}

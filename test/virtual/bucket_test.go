// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// TestBucket checks token buckets: frames that come at once leave at once while the bucket has
// tokens, and then at the rate.
func TestBucket(t *testing.T) {
	const size, burst, n = 1250, 10 * 1250, 200
	for _, b := range []struct {
		name, from, to, script string
		parameters             []string
		// ahead is how many bytes leave at once. HTB and the card send a frame if the bucket is not in
		// debt, so one more frame than the burst leaves at once.
		ahead, overhead float64
	}{
		{"tbf", from, to, "tc qdisc add dev v0 root tbf rate 10mbit burst 12500 limit 1000000", nil, burst, 0},
		{"htb", from, to, `
tc qdisc add dev v0 root handle 1: htb default 1
tc class add dev v0 parent 1: classid 1:1 htb rate 10mbit ceil 10mbit burst 12500 cburst 12500 quantum 1514`[1:],
			nil, burst + size, 0},
		{"htb-overhead", from, to, `
tc qdisc add dev v0 root handle 1: htb default 1
tc class add dev v0 parent 1: classid 1:1 htb rate 10mbit burst 12500 cburst 12500 quantum 1514 overhead 24`[1:],
			nil, burst + size, 24},
		{"card", bed.Dev, bed.Wire, "",
			[]string{"simcard.queues=1", "simcard.speed=10", "simcard.burst_us=10000"}, burst + size, 24},
	} {
		t.Run(b.name, func(t *testing.T) {
			if !inGuest(t, b.parameters...) {
				return
			}
			wire(t, b.from)
			if b.script != "" {
				run(t, b.script)
			}
			frames := make([]frame, n)
			for i := range frames {
				frames[i].size = size
			}
			for i, a := range play(t, b.from, b.to, frames) {
				want := max(0, int64((float64(i+1)*(size+b.overhead)-b.ahead-b.overhead)*nsPerByte))
				if a < 0 || max(a-want, want-a) > resolution {
					t.Fatalf("frame %d arrives after %d ns, want %d", i, a, want)
				}
			}
		})
	}
}

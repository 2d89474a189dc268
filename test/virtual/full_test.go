// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"flag"
	"fmt"
	"testing"

	"github.com/niclane/niclane/lab/virtual"
)

// fullSeeds is how many seeds TestFullLink runs with. With several, it also measures htb and queues alone.
var fullSeeds = flag.Int("seeds", 1, "seeds of TestFullLink; more than one: without a share, and htb, too")

// others is how many queues the default lane has in TestFullLink. The card takes turns among them and the
// lane's own. So with few, a lane waits for few frames whatever shares the link.
var others = flag.Int("others", 2, "queues of the default lane in TestFullLink")

// fastCard returns the parameters of a card with a link of so many Mbit/s.
func fastCard(link float64) []string {
	n := max(8, *others+2)
	return []string{fmt.Sprintf("queues=%d", n), fmt.Sprintf("channels=%d", n), fmt.Sprintf("speed=%.0f", link), "burst_us=0"}
}

// TestFullLink sends up to more than the link takes, beside a lane that goes first. Departure times must cost
// the lane no latency and the link no use: the lane waits for the frame that is on the wire, and now and then
// for one more. That it does not wait longer is the work of the lane's own queues and of the card, which takes
// turns: the lane without a share waits as long. By departure times the lane has a rank alone, with htb a
// guarantee too, without which the default lane's guarantee goes first. Times are in those of a full frame on
// the wire, so that the link's rate does not matter; -v prints them.
func TestFullLink(t *testing.T) {
	for _, link := range []float64{500, 2_500, 10_000, 25_000, 100_000} {
		for _, percent := range []float64{75, 100, 120} {
			for _, by := range []struct {
				bandwidth, asks string
				most            map[string]float64 // times of a frame
			}{
				{"queues", "", nil},
				{"edt", ", rank: 1", map[string]float64{"P50 us": 0.85, "P99 us": 2.1, "P99.9 us": 2.5}},
				{"htb", ", rank: 1, guarantee: 20%", nil},
			} {
				if by.most == nil && *fullSeeds == 1 && !virtual.Here() {
					continue
				}
				t.Run(fmt.Sprintf("%.0fmbit-%.0f-%s", link, percent, by.bandwidth), func(t *testing.T) {
					t.Parallel()
					const payload = 1400
					const readings = 0.006 // us: each reading of the clock takes 1 ns
					m := mechanism{force: "bandwidth: " + by.bandwidth, link: link, alone: by.asks, queues: *others,
						card:    fastCard(link),
						sources: []source{{"default", 7004, 64, percent, payload}}}
					if by.bandwidth == "queues" {
						m.force, m.alone = "mapper: queue-mapping", ", poller: interrupt"
					}
					frame := (payload + headers) * 8 / link // us
					for seed := range uint64(*fullSeeds) {
						f := m.measure(t, seed+1)
						if f == nil {
							return
						}
						for name, most := range by.most {
							if *others > 2 {
								break // the bounds are for few queues
							}
							most += readings / frame
							if got := f[name] / frame; got > most {
								t.Errorf("%s: %.2f times a frame's, want at most %.2f", name, got, most)
							}
						}
						// With what only the wire has: preamble, frame check and gap.
						use := (f["default Mbit/s"]*(payload+headers+24)/(payload+headers) +
							f["first Mbit/s"]*(answer+headers+24)/(answer+headers)) / link
						if percent >= 100 && use < 0.97 {
							t.Errorf("%.3f of the link was used, want 0.97", use)
						}
						t.Logf("P50 %.2f, P99 %.2f, P99.9 %.2f frames; %.3f of the link", f["P50 us"]/frame,
							f["P99 us"]/frame, f["P99.9 us"]/frame, use)
					}
				})
			}
		}
	}
}

// TestShares checks what departure times give each lane within 10 ms, which is the window of the experiment
// on this link: a guarantee and a ceiling are kept within 1 %.
func TestShares(t *testing.T) {
	const link = slowest * window / 10e6
	m := mechanism{force: "bandwidth: edt", link: link, card: fastCard(link), rank: true, guarantee: true, ceiling: true}
	f := m.measure(t, 1)
	if f == nil {
		return
	}
	if got := f["held Mbit/s"] / link; got < 0.99*0.3 {
		t.Errorf("%.4f of the link, want the guarantee of 0.3", got)
	}
	if got := f["capped Mbit/s"] / link; got < 0.99*0.1 || got > 1.01*0.1 {
		t.Errorf("%.4f of the link, want the guarantee and ceiling of 0.1", got)
	}
	t.Logf("%v", f)
}

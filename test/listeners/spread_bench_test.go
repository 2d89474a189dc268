// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"fmt"
	"testing"

	"github.com/niclane/niclane/app"
)

// BenchmarkListeners tests nginx with two workers, each on a processor with a receive queue of its
// lane. It measures how evenly connections are spread over workers: the largest number divided by
// the mean. It also measures how many connections are served on the processor on which their
// packets arrive. It compares the kernel's hash with niclane. In both, the card spreads connections
// over its queues at random.
func BenchmarkListeners(b *testing.B) {
	const rounds = 10
	for _, conns := range []int{16, 128} {
		b.Run(fmt.Sprintf("%d connections", conns), func(tb *testing.B) {
			onBed(tb, func(b *bed) {
				n := b.nginx(2, auto)
				hash, led := &spread{}, &spread{}
				for tb.Loop() {
					for range rounds {
						hash.add(n.aligned(conns))
						if _, err := app.Attach(b.lane, b.listening(app.Listeners{}),
							app.Target{PID: n.main}); err != nil {
							b.Error(err)
							return
						}
						b.led(2)
						led.add(n.aligned(conns))
						if _, err := app.Detach(b.options.RunDir, app.Choice{PID: n.main}); err != nil {
							b.Error(err)
							return
						}
					}
				}
				tb.ReportMetric(0, "ns/op")
				hash.report(tb, "hash")
				led.report(tb, "led")
			})
		})
	}
}

// spread has sums over all rounds.
type spread struct {
	rounds, uneven float64 // sum over rounds of a worker's largest number divided by the mean
	near, all      int     // connections served on the processor where they arrive, and all connections
}

func (s *spread) add(near int, by map[string]int) {
	most, all := 0, 0
	for _, k := range by {
		most, all = max(most, k), all+k
	}
	s.near, s.all = s.near+near, s.all+all
	s.uneven += float64(most) / (float64(all) / 2) // there are two workers
	s.rounds++
}

func (s *spread) report(b *testing.B, how string) {
	b.ReportMetric(s.uneven/s.rounds, how+"-max/mean")
	b.ReportMetric(100*float64(s.near)/float64(s.all), how+"-%-aligned")
}

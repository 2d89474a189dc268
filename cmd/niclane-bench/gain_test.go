// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// samegain BENCH TRIAL fails unless the second variant's gain over the first one is the same in the results
// of a bench and of a trial: the 95 % intervals of the ratios of the clients' mean time overlap. A bench
// measures this time at the generator. A trial has it in two parts, if clients do not delay
// acknowledgements: the time in the host, and the round trip that TCP measures there. Both have the way from
// the socket to the card. Means can be added, percentiles can not.
func samegain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: samegain BENCH TRIAL")
	}
	gain := func(path string, mean func(*result.Window) float64) stats.Ratio {
		r, err := result.ReadFile(ts.MkAbs(path))
		ts.Check(err)
		byRound := map[int]*stats.Pair{}
		for i := range r.Windows {
			w := &r.Windows[i]
			if byRound[w.Repeat] == nil {
				byRound[w.Repeat] = &stats.Pair{}
			}
			if ns := int64(math.Round(mean(w))); w.Variant == r.Variants[0].Name {
				byRound[w.Repeat].Base = ns
			} else {
				byRound[w.Repeat].Variant = ns
			}
		}
		var pairs []stats.Pair
		for _, p := range byRound {
			if p.Base > 0 && p.Variant > 0 { // not cut off
				pairs = append(pairs, *p)
			}
		}
		ratio, err := stats.PairedRatio(pairs)
		ts.Check(err)
		ts.Logf("%s: %+v", path, pairs)
		ts.Logf("%s: ×%.4f (%.4f to %.4f), %d pairs", path, ratio.Estimate, ratio.Low, ratio.High, ratio.N)
		return ratio
	}
	bench := gain(args[0], func(w *result.Window) float64 { return w.Load.Latency.Mean() })
	trial := gain(args[1], func(w *result.Window) float64 {
		mean := w.Load.Latency.Mean()
		for _, x := range w.Live.Waits {
			switch x.Stage {
			case result.RoundTrip:
				mean += x.Latency.Mean()
			case "socket-to-card":
				mean -= x.Latency.Mean()
			}
		}
		return mean
	})
	if bench.High < trial.Low || trial.High < bench.Low {
		ts.Fatalf("bench and trial differ")
	}
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPairsToTell checks the number of pairs by simulation: with that many pairs, about 80 % of the
// comparisons tell the ratio from 1.
func TestPairsToTell(t *testing.T) {
	for _, tt := range []struct {
		ratio, sd   float64
		comparisons int
	}{{1.05, 0.1, 1}, {1.05, 0.1, 8}, {0.8, 0.5, 3}} {
		n := PairsToTell(Ratio{Estimate: tt.ratio, SpreadLog: tt.sd}, tt.comparisons)
		random := rand.New(rand.NewPCG(1, uint64(n)))
		const runs = 400
		told := 0
		for range runs {
			pairs := make([]Pair, n)
			for i := range pairs {
				pairs[i] = Pair{int64(1e9 * math.Exp(math.Log(tt.ratio)+tt.sd*random.NormFloat64())), 1e9}
			}
			r, err := PairedRatio(pairs)
			if err != nil {
				t.Fatal(err)
			}
			if r.Chance*float64(tt.comparisons) <= 0.05 {
				told++
			}
		}
		if share := float64(told) / runs; share < 0.72 || share > 0.88 {
			t.Errorf("%+v: %d pairs tell in %.0f %% of runs, want 80 %%", tt, n, 100*share)
		}
	}
	if n := PairsToTell(Ratio{Estimate: 1, SpreadLog: 0.1}, 1); n != 0 {
		t.Errorf("a ratio of 1 needs %d pairs, want 0: none are enough", n)
	}
	if n, want := PairsToTell(Ratio{Estimate: 10, SpreadLog: 0.01}, 8), PairsFor(8); n != want {
		t.Errorf("a clear ratio needs %d pairs, want %d", n, want)
	}
}

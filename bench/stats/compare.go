// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"slices"
)

// Same is shown in place of a difference that noise may explain.
const Same = "~"

// A Difference is what can be said about a ratio. Text is the change in per cent, or Same.
type Difference struct {
	Text   string `json:"text"` // "-12.3%", "+4.0%" or "~"
	Reason string `json:"reason"`
}

// A Comparison is one of several ratios that are judged together.
type Comparison struct {
	Ratio Ratio
	// Floor is how much the base differs from itself; nil if not measured.
	Floor *Floor
}

// Compare judges ratios that are shown together. A ratio is Same in three cases: its 95 % interval
// includes 1; the host alone makes repeats of one variant differ as much (Floor); or chance may
// explain it among so many comparisons. The third case uses Holm's procedure (1979, Scandinavian
// Journal of Statistics 6) at 5 % for all comparisons together. It does not assume that the
// comparisons are independent.
func Compare(family []Comparison) []Difference {
	chances := make([]float64, len(family))
	for i, c := range family {
		chances[i] = c.Ratio.Chance
	}
	adjusted := Holm(chances)
	out := make([]Difference, len(family))
	for i, c := range family {
		r := c.Ratio
		d := &out[i]
		d.Text = Same
		interval := fmt.Sprintf("%.3f to %.3f", r.Low, r.High)
		switch {
		case r.N == 0 || math.IsNaN(r.Low) || math.IsNaN(r.High):
			d.Reason = "there is no interval"
		case r.Low <= 1 && 1 <= r.High:
			d.Reason = "the 95 % interval " + interval + " includes 1"
		case c.Floor != nil && math.Abs(math.Log(r.Estimate)) < math.Log(c.Floor.Detectable):
			d.Reason = fmt.Sprintf("repeats of one variant differ so much that %d pairs cannot tell ratios within "+
				"a factor of %.3f from 1, and this ratio is %.3f",
				c.Floor.ForPairs, c.Floor.Detectable, r.Estimate)
		case !(adjusted[i] <= 0.05):
			d.Reason = fmt.Sprintf("among %d comparisons, chance alone makes a ratio like this with probability %.2g "+
				"(in a single comparison: %.2g)", len(family), adjusted[i], r.Chance)
		default:
			d.Text = fmt.Sprintf("%+.1f%%", 100*(r.Estimate-1))
			d.Reason = fmt.Sprintf("95 %% interval %s; chance %.2g among %d comparisons", interval, adjusted[i],
				len(family))
		}
	}
	return out
}

// PairsFor returns how many pairs are needed to detect a difference among the given number of
// comparisons, at least MinWilcoxon. With fewer pairs, Compare reports Same even if all pairs agree
// (the probability is 2/2^n).
func PairsFor(comparisons int) int {
	n := MinWilcoxon
	for float64(comparisons)*math.Ldexp(2, -n) > 0.05 {
		n++
	}
	return n
}

// Holm returns p-values adjusted for the number of tests. An adjusted value is the smallest level
// of the whole family at which the test is rejected. NaN counts as 1.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	at := func(i int) float64 {
		if math.IsNaN(p[i]) {
			return 1
		}
		return p[i]
	}
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := at(a), at(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	out := make([]float64, len(p))
	highest := 0.0
	for rank, i := range order {
		highest = max(highest, min(1, float64(len(p)-rank)*at(i)))
		out[i] = highest
	}
	return out
}

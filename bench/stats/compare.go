// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"slices"
)

// Same replaces a difference that noise alone may explain.
const Same = "~"

// A Difference is the statement about a ratio: Text is the change in per cent, or Same.
type Difference struct {
	Text   string `json:"text"` // "-12.3%", "+4.0%" or "~"
	Reason string `json:"reason"`
}

// A Comparison is one of the ratios that are shown together.
type Comparison struct {
	Ratio Ratio
	// Floor is the base compared with itself, nil if not measured.
	Floor *Floor
}

// Compare judges ratios that are shown together. A ratio is Same when its 95 % interval
// includes 1, when the host alone moves repeats of one variant as far (Floor), or when chance
// alone explains it among that many comparisons. The last is Holm's procedure (1979,
// Scandinavian Journal of Statistics 6) at 5 % for all of them together. It assumes nothing
// about how the comparisons depend on each other.
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

// PairsFor returns how many pairs are needed to tell a difference among the given number of
// comparisons, at least MinWilcoxon. With fewer pairs, Compare reports Same even if all pairs
// agree (2/2^n).
func PairsFor(comparisons int) int {
	n := MinWilcoxon
	for float64(comparisons)*math.Ldexp(2, -n) > 0.05 {
		n++
	}
	return n
}

// Holm returns the p-values adjusted for their number: the smallest level of the whole family
// at which each is rejected. NaN counts as 1.
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

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// signedRankCost is how many times more pairs the signed-rank test needs than a t test, for normal
// log ratios: the inverse of its asymptotic relative efficiency (Hollander, Wolfe, Chicken, 3.11).
const signedRankCost = math.Pi / 3

// PairsToTell returns how many pairs would tell a ratio from 1 among the given number of
// comparisons, with a probability of 80 %, if its estimate and its spread stay as they are. It is at
// least PairsFor(comparisons), and 0 if no number is enough: the estimate is 1.
func PairsToTell(r Ratio, comparisons int) int {
	d := math.Abs(math.Log(r.Estimate))
	if !(d > 0) || math.IsInf(d, 0) || math.IsNaN(r.SpreadLog) {
		return 0
	}
	z := distuv.UnitNormal.Quantile(1-0.025/float64(max(comparisons, 1))) + distuv.UnitNormal.Quantile(0.8)
	n := math.Ceil(signedRankCost * math.Pow(z*r.SpreadLog/d, 2))
	return max(PairsFor(comparisons), int(min(n, math.MaxInt32)))
}

// SPDX-License-Identifier: Apache-2.0

package result

import (
	"math"

	"github.com/niclane/niclane/bench/stats"
)

// columns is the number of thresholds of the histogram, as in the Aerospike paper.
const columns = 15

// thresholds returns multiples of a round number, up to at least the P99 of the slowest variant.
// They are evenly spaced, as in the Aerospike paper. All variants get the same thresholds, so that
// they can be compared.
func thresholds(variants []VariantSummary) []int64 {
	slowest := 0.0
	for _, v := range variants {
		for _, c := range v.Curve { // the Curve is used only to choose the range
			if c.Percentile <= 99.05 {
				slowest = max(slowest, float64(c.NS))
			}
		}
	}
	if slowest == 0 {
		return nil
	}
	step := roundUp(slowest / columns)
	out := make([]int64, columns)
	for i := range out {
		out[i] = int64(float64(i+1) * step)
	}
	return out
}

// roundUp rounds v up to 1, 2, 4, 5 or 8 times a power of ten. The result is at least 1.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(max(v, 1))))
	for _, m := range []float64{1, 2, 4, 5, 8} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}

// Bucketed is the mean that a reader can compute from the paper's histogram: the middle of each
// bucket, weighted by its share of requests. The true mean lies between Low and High; for them,
// each request counts as the lower or the upper end of its bucket. Values above the last threshold
// count as that threshold, so High is valid only if Beyond is 0.
type Bucketed struct {
	Mean   float64 `json:"meanNs"`
	Low    float64 `json:"lowNs"`
	High   float64 `json:"highNs"`
	Beyond float64 `json:"beyond"` // share of requests above the last threshold
}

func (v *VariantSummary) exceed(sample *stats.Sample, thresholds []int64) {
	if len(thresholds) == 0 {
		return
	}
	b := &Bucketed{}
	step, within := float64(thresholds[0]), 0.0
	for i, t := range thresholds {
		share, err := sample.Within(t)
		if err != nil {
			v.Exceed = nil // there are too few windows for any share
			return
		}
		share.Value = t // undo the rounding of Within, which is less than a thousandth
		v.Exceed = append(v.Exceed, share)
		here := share.Within - within
		within = share.Within
		b.Mean += here * (float64(i) + 0.5) * step
		b.Low += here * float64(i) * step
		b.High += here * float64(i+1) * step
	}
	b.Beyond = 1 - within
	last := float64(thresholds[len(thresholds)-1])
	b.Mean += b.Beyond * last
	b.Low += b.Beyond * last
	b.High += b.Beyond * last
	v.Bucketed = b
}

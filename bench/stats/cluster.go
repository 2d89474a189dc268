// SPDX-License-Identifier: Apache-2.0

package stats

import "gonum.org/v1/gonum/stat/distuv"

// This file computes how many independent samples correlated samples are worth. So many independent
// samples would give an interval of the same width.
//
// Let q be the share of all samples beyond some value. If samples were independent, the number
// beyond would be binomial with variance N·q·(1-q). The windows show the real variance. Take a
// window with n samples, of which e are beyond. Its residual is z = e - q·n; the residuals of all
// windows add up to zero. Divide the windows into B groups of neighbours, and let s be the sum of a
// group's residuals. Then B/(B-1)·Σs² estimates the variance of the total (batch means; in survey
// sampling the ultimate-cluster estimator of a ratio: Cochran, Sampling Techniques, chapter 9A).
// The estimate is right if a group is longer than the correlation. So measure tries groups of 1, 2,
// 4, ... windows and whole repeats, and takes the largest variance. Without correlation, this is 10
// to 20 % too large. A test for correlation is not needed; it could miss a correlation.
const (
	// minBatches is the smallest number of groups for an estimate of the variance.
	minBatches = 10
	// MinRepeats is the smallest number of repeats from which differences between repeats can be
	// estimated.
	MinRepeats = 6
	// minFreedom and minEvents are the least degrees of freedom and the least number of effective
	// samples beyond. With fewer, the tail consists of a few stalls. The sample then shows how many
	// stalls there were, but not how often stalls occur (TestCoverage).
	minFreedom = 4
	minEvents  = 100
)

// A design says how many independent samples a correlated sample is worth, for one value.
type design struct {
	effect  float64 // variance divided by the binomial variance, at least 1
	df      float64 // degrees of freedom of the estimate of effect
	batches int
	windows int // windows per batch; 0: each batch is a repeat
}

// measure returns the design for the share q of n samples beyond a value. z has the residuals of
// each repeat, window by window. ok is false if there are too few windows and too few repeats.
func measure(z [][]float64, n, q float64) (d design, ok bool) {
	longest := 0
	for _, r := range z {
		longest = max(longest, len(r))
	}
	for windows := 1; windows <= longest; windows *= 2 {
		sums := batchSums(z, windows)
		if len(sums) < minBatches {
			break
		}
		d, ok = d.or(sums, windows, n*q*(1-q)), true
	}
	if len(z) >= MinRepeats {
		d, ok = d.or(batchSums(z, longest), 0, n*q*(1-q)), true
	}
	return d, ok
}

// batchSums divides windows into groups of about the given number of neighbours, each within one
// repeat. It returns the sum of residuals of each group.
func batchSums(z [][]float64, windows int) (sums []float64) {
	for _, r := range z {
		groups := max(len(r)/windows, 1)
		for i := range groups {
			sum := 0.0
			for _, v := range r[i*len(r)/groups : (i+1)*len(r)/groups] {
				sum += v
			}
			sums = append(sums, sum)
		}
	}
	return sums
}

// or computes the design from the batches' sums. It returns this design or d: the one with fewer
// effective samples. variance is the binomial variance.
func (d design) or(sums []float64, windows int, variance float64) design {
	b := float64(len(sums))
	s2, s4 := 0.0, 0.0
	for _, s := range sums {
		s2 += s * s
		s4 += s * s * s * s
	}
	effect := max(s2*b/(b-1)/variance, 1)
	// If only one sample is beyond, all groupings have the same effect, apart from rounding errors.
	// These must not decide.
	const rounding = 1e-9
	if effect < d.effect*(1-rounding) || effect <= d.effect*(1+rounding) && b-1 <= d.df {
		return d
	}
	// Satterthwaite (1946, Biometrics Bulletin 2): the degrees of freedom are 2V²/Var(V), with the
	// variance of Σs² as Σs⁴ - (Σs²)²/B. For normal sums the result is about B. If a few stalls cause
	// nearly all of Σs², it is about the number of stalls.
	df := b - 1
	if s2 > 0 {
		df = max(min(df, 2/max(s4/(s2*s2)-1/b, 1e-9)), 1)
	}
	return design{effect: effect, df: df, batches: len(sums), windows: windows}
}

// fewEvents returns the factor by which the number of samples must grow until the samples beyond
// come from enough separate events. If they already do, it is at most 1. beyond is the number of
// samples beyond.
func (d design) fewEvents(beyond float64) float64 {
	return min(minFreedom/d.df, minEvents*d.effect/beyond)
}

// worth returns how many independent samples n samples are worth for an interval. Correlation makes
// the number smaller. It is smaller again because the design is estimated from few batches (Korn
// and Graubard 1998, Survey Methodology 24).
func (d design) worth(n float64) float64 {
	t := tQuantile(0.975, d.df) / distuv.UnitNormal.Quantile(0.975)
	return n / (d.effect * max(t*t, 1))
}

// SPDX-License-Identifier: Apache-2.0

package stats

import "gonum.org/v1/gonum/stat/distuv"

// How many independent samples correlated samples are worth.
//
// Let q be the share of all samples beyond some value. If samples were independent, the number
// beyond would be binomial with variance N·q·(1-q). The windows show the real variance. With n
// samples and e beyond in a window, the residuals z = e - q·n of the windows add up to zero. B
// groups of neighbouring windows with sums s estimate the variance of the total as B/(B-1)·Σs²
// (batch means; in survey sampling the ultimate-cluster estimator of a ratio: Cochran, Sampling
// Techniques, chapter 9A). The estimate is right once a group is longer than the correlation.
// So measure tries groups of 1, 2, 4, ... windows and whole repeats, and takes the largest
// variance. Without correlation, this overestimates by 10 to 20 %. It needs no test for
// correlation that could miss one.
const (
	// minBatches is the smallest number of groups for an estimate of the variance.
	minBatches = 10
	// MinRepeats is the smallest number of repeats that shows how much repeats differ.
	MinRepeats = 6
	// minFreedom and minEvents: with fewer degrees of freedom and fewer effective samples
	// beyond, a few stalls make up the tail. The sample then shows how many stalls there were,
	// but not how often they occur (TestCoverage).
	minFreedom = 4
	minEvents  = 100
)

// A design is how many independent samples the samples are worth, for one value.
type design struct {
	effect  float64 // variance divided by the binomial one, at least 1
	df      float64 // degrees of freedom of that estimate
	batches int
	windows int // per batch; 0: a batch is a repeat
}

// measure returns the design effect of the share q of n samples beyond a value. z has every
// repeat's residuals, window by window. ok is false when there are too few windows and too few
// repeats.
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

// batchSums sums residuals over groups of about the given number of neighbouring windows. A
// group lies within one repeat.
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

// or returns d or the design that the given batches show: the one with fewer effective samples.
// variance is the binomial one.
func (d design) or(sums []float64, windows int, variance float64) design {
	b := float64(len(sums))
	s2, s4 := 0.0, 0.0
	for _, s := range sums {
		s2 += s * s
		s4 += s * s * s * s
	}
	effect := max(s2*b/(b-1)/variance, 1)
	// With one sample beyond, all groupings have the same effect apart from rounding errors,
	// which must not decide.
	const rounding = 1e-9
	if effect < d.effect*(1-rounding) || effect <= d.effect*(1+rounding) && b-1 <= d.df {
		return d
	}
	// Satterthwaite (1946, Biometrics Bulletin 2): 2V²/Var(V), with the variance of Σs² as Σs⁴
	// - (Σs²)²/B. For normal sums it is B. If a few stalls make up all of Σs², it is about
	// their number.
	df := b - 1
	if s2 > 0 {
		df = max(min(df, 2/max(s4/(s2*s2)-1/b, 1e-9)), 1)
	}
	return design{effect: effect, df: df, batches: len(sums), windows: windows}
}

// fewEvents returns the factor by which the number of samples must grow until the samples
// beyond no longer come from few events. It is at most 1 if they do not. beyond is their
// number.
func (d design) fewEvents(beyond float64) float64 {
	return min(minFreedom/d.df, minEvents*d.effect/beyond)
}

// worth returns how many independent samples n samples are worth for an interval: fewer for
// correlation, and fewer again because few batches estimate it (Korn and Graubard 1998, Survey
// Methodology 24).
func (d design) worth(n float64) float64 {
	t := tQuantile(0.975, d.df) / distuv.UnitNormal.Quantile(0.975)
	return n / (d.effect * max(t*t, 1))
}

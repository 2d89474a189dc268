// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/niclane/niclane/bench/stats"
)

// Process says how the gaps between intended sends are distributed.
type Process string

// Values of Process.
const (
	Constant Process = "constant"
	Poisson  Process = "poisson"
)

const (
	// gapTolerance is the largest distance between the distributions of actual and intended gaps that
	// is accepted. A significance test alone would not do: with millions of gaps, every real generator
	// differs significantly.
	gapTolerance = 0.05
	// jitter is the largest accepted error of a gap in the constant process, as a share.
	jitter = 0.1
)

// Gaps compares the actual times between sends (ns) with the intended process at the given rate
// (per second).
//
// For Poisson, it uses the one-sample Kolmogorov-Smirnov distance to the exponential distribution.
// For Constant, it uses the share of gaps that are wrong by more than jitter.
func Gaps(p Process, rate float64, gaps *stats.Histogram) []Warning {
	n := float64(gaps.Count())
	if n < 100 {
		return nil // with few gaps, a distance above 0.05 is not yet improbable
	}
	mean := 1e9 / rate
	seen, distance, off := 0.0, 0.0, 0.0
	gaps.Buckets(func(low, high, count int64) bool {
		// Both distributions are known at the ends of a bucket. Between two occupied buckets, the
		// distance is largest at the ends.
		f := func(x int64) float64 { return 1 - math.Exp(-float64(x)/mean) }
		distance = max(distance, math.Abs(f(low)-seen/n))
		seen += float64(count)
		distance = max(distance, math.Abs(f(high+1)-seen/n))
		if float64(high) < (1-jitter)*mean || float64(low) > (1+jitter)*mean {
			off += float64(count)
		}
		return true
	})
	if p == Constant {
		if share := off / n; share > gapTolerance {
			return []Warning{{
				Check: "off-schedule",
				Text: fmt.Sprintf("%.1f %% of %.0f gaps between sends are more than %.0f %% off %s: the generator "+
					"did not keep its constant schedule",
					100*share, n, 100*jitter, ns(mean)),
				Values: map[string]float64{"share": share, "gaps": n, "meanNs": mean},
			}}
		}
		return nil
	}
	// 1.63/√n is Kolmogorov's critical value at 1 %.
	if critical := 1.63 / math.Sqrt(n); distance > max(gapTolerance, critical) {
		return []Warning{{
			Check: "off-schedule",
			Text: fmt.Sprintf("gaps between sends are not exponential with mean %s: Kolmogorov-Smirnov distance "+
				"%.3f of %.0f gaps, want at most %.3f",
				ns(mean), distance, n, max(gapTolerance, critical)),
			Values: map[string]float64{"distance": distance, "gaps": n, "critical": critical},
		}}
	}
	return nil
}

// dispersionTolerance is the largest accepted difference between the measured index of dispersion
// and the process's own.
const dispersionTolerance = 0.1

// Dispersion compares the numbers of requests sent in equal windows with the intended process. The
// index of dispersion is the variance of these numbers divided by their mean: 1 for Poisson, close
// to 0 for constant arrivals. Bursts after pauses make it larger, even if the gaps within a burst
// look right (Cox and Lewis, The Statistical Analysis of Series of Events, 1966, chapter 6).
func Dispersion(p Process, sent []int64) []Warning {
	if len(sent) < 10 {
		return nil
	}
	x := make([]float64, len(sent))
	for i, v := range sent {
		x[i] = float64(v)
	}
	mean, variance := stat.MeanVariance(x, nil)
	if mean == 0 {
		return nil
	}
	index := variance / mean
	// In a constant process, the numbers differ by 1 if a window does not have a whole number of gaps.
	low, high := 0.0, dispersionTolerance+1/mean
	if p == Poisson {
		df := float64(len(x) - 1)
		chi := distuv.ChiSquared{K: df} // distribution of (n-1) times the index
		low = min(1-dispersionTolerance, chi.Quantile(0.0005)/df)
		high = max(1+dispersionTolerance, chi.Quantile(0.9995)/df)
	}
	if low <= index && index <= high {
		return nil
	}
	return []Warning{{
		Check: "off-schedule",
		Text: fmt.Sprintf("sends of %d windows have an index of dispersion of %.2f, want %.2f to %.2f for %s arrivals",
			len(x), index, low, high, p),
		Values: map[string]float64{"index": index, "low": low, "high": high, "windows": float64(len(x))},
	}}
}

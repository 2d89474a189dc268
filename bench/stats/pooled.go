// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

// A SeriesPair has two neighbouring repeats, one of each variant.
type SeriesPair struct{ Variant, Base *Series }

// resamples is the number of draws of a bootstrap. With this number, chance in the draws moves the
// ends of the interval by about a thirtieth of its width.
const resamples = 2000

// PooledRatio estimates variant/base of percentile p (more than 0, less than 100) of all repeats
// together. It is for percentiles for which one repeat has too few samples. If one repeat has
// enough, use PairedRatio: a repeat that the host disturbed has less effect on it.
//
// It draws pairs with replacement and computes the percentiles of each draw from the merged
// histograms. So the samples of a repeat, and both repeats of a pair, stay together (Field and
// Welsh 2007, Journal of the Royal Statistical Society B 69: the cluster bootstrap). The ends of
// the interval are percentiles of the draws. They lie further out than 2.5 % and 97.5 %, because
// few pairs vary less than the population from which they come: Hesterberg's expanded percentile
// interval (2015, The American Statistician 69). PooledRatio needs MinRepeats pairs. With the same
// seed it gives the same result.
func PooledRatio(pairs []SeriesPair, p float64, seed uint64) (Ratio, error) {
	if !(p > 0 && p < 100) {
		return Ratio{}, fmt.Errorf("percentile %v: want more than 0 and less than 100", p)
	}
	n := len(pairs)
	if n < MinRepeats {
		return Ratio{}, fmt.Errorf("pooled ratio of P%v: %d pairs, want at least %d", p, n, MinRepeats)
	}
	variants, bases := make([]*Series, n), make([]*Series, n)
	for i, pair := range pairs {
		variants[i], bases[i] = cmp.Or(pair.Variant, &Series{}), cmp.Or(pair.Base, &Series{})
	}
	for _, s := range []struct {
		name    string
		repeats []*Series
	}{{"variant", variants}, {"base", bases}} {
		// Do not use the design effect of each side here: effects that both repeats of a pair share
		// cancel in the ratio.
		have, need := int64(0), Needed(p)
		for _, r := range s.repeats {
			have += r.n
		}
		if have < need {
			return Ratio{}, fmt.Errorf("pooled ratio, %s: %w", s.name,
				&TooFewError{Percentile: p, Have: have, Need: need, Effective: float64(have)})
		}
	}
	variant, base := cumulate(variants), cumulate(bases)
	times := make([]int64, n) // how often this draw has each pair
	logRatio := func() float64 { return math.Log(variant.percentile(p, times) / base.percentile(p, times)) }
	for i := range times {
		times[i] = 1
	}
	estimate := logRatio()
	rng := rand.New(rand.NewPCG(seed, 0x706f6f6c))
	draws := make([]float64, resamples)
	for i := range draws {
		clear(times)
		for range n {
			times[rng.IntN(n)]++
		}
		draws[i] = logRatio()
	}
	slices.Sort(draws)
	_, sd := meanSD(draws)
	shrink := math.Sqrt(float64(n-1) / float64(n)) // ratio of the draws' spread to the estimate's
	end := func(u float64) float64 {
		t := tQuantile(u, float64(n-1)) / shrink
		i := distuv.UnitNormal.CDF(t) * resamples
		return math.Exp(draws[min(max(int(i), 0), resamples-1)])
	}
	// other is the share of draws on the other side of 1 than the estimate.
	below, _ := slices.BinarySearch(draws, 0)
	above, _ := slices.BinarySearch(draws, math.Nextafter(0, 1))
	other := (float64(min(above, resamples-below)) + 1) / (resamples + 1)
	return Ratio{
		N: n, Estimate: math.Exp(estimate),
		Low: end(0.025), High: end(0.975), Lower: end(0.05), Upper: end(0.95),
		SpreadLog: sd / shrink * math.Sqrt(float64(n)), // converted to the spread of one pair
		Chance:    min(1, tChance(distuv.UnitNormal.Quantile(min(other, 0.5))*shrink, float64(n-1))),
		Method:    "bootstrap of pairs, pooled histograms, expanded percentile interval",
	}, nil
}

// cumulativeCounts has, for each repeat, the number of samples up to each bucket. It has only
// buckets that are occupied in at least one repeat.
type cumulativeCounts struct {
	cells []int // buckets, in rising order
	upTo  [][]int64
}

func cumulate(repeats []*Series) cumulativeCounts {
	var seen [buckets]bool
	for _, r := range repeats {
		for _, b := range r.cells {
			seen[b] = true
		}
	}
	var c cumulativeCounts
	var at [buckets]int // index of each bucket in c.cells
	for b, is := range seen {
		if is {
			at[b] = len(c.cells)
			c.cells = append(c.cells, b)
		}
	}
	for _, r := range repeats {
		upTo := make([]int64, len(c.cells))
		for i, b := range r.cells {
			upTo[at[b]] += int64(r.counts[i])
		}
		for i := 1; i < len(upTo); i++ {
			upTo[i] += upTo[i-1]
		}
		c.upTo = append(c.upTo, upTo)
	}
	return c
}

// percentile returns the percentile of all repeats together, as the middle of its bucket. Repeat i
// counts times[i] times.
func (c cumulativeCounts) percentile(p float64, times []int64) float64 {
	upTo := func(cell int) (n int64) {
		for i, t := range times {
			n += t * c.upTo[i][cell]
		}
		return n
	}
	last := len(c.cells) - 1
	rank := int64(math.Ceil(p/100*float64(upTo(last)) - 1e-6))
	low, high := bucketRange(c.cells[sort.Search(last, func(cell int) bool { return upTo(cell) >= rank })])
	return max(float64(low+high)/2, 0.5)
}

// UnpairedRatio compares two percentiles that were measured at different times, as in two result
// files. Changes of the host do not cancel: they are part of the ratio, but the interval does not
// include them.
//
// The interval is computed from the intervals of both estimates (method of variance estimates
// recovery: Zou and Donner 2008, Statistics in Medicine 27, on logarithms).
func UnpairedRatio(variant, base Estimate) (Ratio, error) {
	for _, e := range []Estimate{variant, base} {
		if e.Low <= 0 || e.Value < e.Low || e.High < e.Value {
			return Ratio{}, fmt.Errorf("unpaired ratio: P%v is %d, %d to %d; want positive values in order",
				e.Percentile, e.Value, e.Low, e.High)
		}
	}
	log := func(a, b int64) float64 { return math.Log(float64(a) / float64(b)) }
	d := log(variant.Value, base.Value)
	down := math.Hypot(log(variant.Value, variant.Low), log(base.High, base.Value))
	up := math.Hypot(log(variant.High, variant.Value), log(base.Value, base.Low))
	z := distuv.UnitNormal.Quantile(0.975)
	oneSided := distuv.UnitNormal.Quantile(0.95) / z
	toOne := up // distance between the estimate and the end that is nearer to 1
	if d > 0 {
		toOne = down
	}
	chance := 1.0
	if d != 0 {
		chance = 2 * distuv.UnitNormal.CDF(-math.Abs(d)/toOne*z)
	}
	return Ratio{
		N: 1, Estimate: math.Exp(d), Low: math.Exp(d - down), High: math.Exp(d + up),
		Lower: math.Exp(d - down*oneSided), Upper: math.Exp(d + up*oneSided),
		SpreadLog: (down + up) / 2 / z, Chance: chance,
		Method: "from both percentiles' intervals, unpaired",
	}, nil
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Pair has the same quantity of two neighbouring repeats: a percentile in ns, or a rate.
type Pair struct {
	Variant int64 `json:"variant"`
	Base    int64 `json:"base"`
}

// A Ratio is the ratio variant/base from pairs, with its 95 % interval.
type Ratio struct {
	N         int     `json:"n"`         // number of pairs
	Estimate  float64 `json:"estimate"`  // Hodges-Lehmann pseudo-median, or geometric mean
	Low       float64 `json:"low"`       // two-sided 95 % interval: Low to High
	High      float64 `json:"high"`      //
	Upper     float64 `json:"upper"`     // one-sided upper 95 % bound
	Lower     float64 `json:"lower"`     // one-sided lower 95 % bound
	SpreadLog float64 `json:"spreadLog"` // standard deviation of the log ratios
	// Chance is the two-sided p-value: the probability of an estimate at least this far from 1 if
	// there were no difference.
	Chance float64 `json:"chance"`
	Method string  `json:"method"`
}

// MinWilcoxon is the smallest number of pairs with which the signed-rank test can reach 95 %
// two-sided: 2/2^6 = 3.1 %.
const MinWilcoxon = 6

// PairedRatio estimates variant/base from pairs of repeats that were measured next to each other.
//
// It uses the log ratio of each pair, so slow changes of the host cancel. With at least MinWilcoxon
// pairs, the estimate is the Hodges-Lehmann median of the Walsh averages, and the interval is the
// exact Wilcoxon signed-rank interval (Hollander, Wolfe, Chicken: Nonparametric Statistical
// Methods, 3.2 and 3.3). A repeat that the host disturbed changes this estimate less than it would
// change a mean. Ties only make the interval wider. With fewer pairs no such interval exists. Then
// PairedRatio uses the t interval of the mean log ratio, which assumes that log ratios are normal.
//
// Both methods assume that pairs are independent. Because repeats are interleaved, this is
// plausible, but not proved. Fewer than two pairs, or a value that is not positive, is an error.
func PairedRatio(pairs []Pair) (Ratio, error) {
	n := len(pairs)
	if n < 2 {
		return Ratio{}, fmt.Errorf("paired ratio: %d pairs, want at least 2", n)
	}
	d := make([]float64, n)
	for i, p := range pairs {
		if p.Variant <= 0 || p.Base <= 0 {
			return Ratio{}, fmt.Errorf("paired ratio: pair %d is %d/%d, want both positive", i, p.Variant, p.Base)
		}
		d[i] = math.Log(float64(p.Variant) / float64(p.Base))
	}
	mean, sd := meanSD(d)
	r := Ratio{N: n, SpreadLog: sd}
	if n < MinWilcoxon {
		se := sd / math.Sqrt(float64(n))
		r.Method = "t interval of the mean log ratio"
		r.Estimate = math.Exp(mean)
		r.Low = math.Exp(mean - tQuantile(0.975, float64(n-1))*se)
		r.High = math.Exp(mean + tQuantile(0.975, float64(n-1))*se)
		r.Upper = math.Exp(mean + tQuantile(0.95, float64(n-1))*se)
		r.Lower = math.Exp(mean - tQuantile(0.95, float64(n-1))*se)
		r.Chance = tChance(mean/se, float64(n-1))
		return r, nil
	}
	walsh := make([]float64, 0, n*(n+1)/2)
	for i := range d {
		for j := i; j < n; j++ {
			walsh = append(walsh, (d[i]+d[j])/2)
		}
	}
	slices.Sort(walsh)
	two, one := signedRankCritical(n, 0.025), signedRankCritical(n, 0.05)
	r.Method = "Hodges-Lehmann, exact Wilcoxon signed-rank interval"
	r.Estimate = math.Exp(median(walsh))
	r.Low = math.Exp(walsh[two-1])
	r.High = math.Exp(walsh[len(walsh)-two])
	r.Upper = math.Exp(walsh[len(walsh)-one])
	r.Lower = math.Exp(walsh[one-1])
	r.Chance = signedRankChance(d)
	return r, nil
}

// signedRank returns the distribution of the signed-rank statistic W+ for n differences without
// ties, if there is no effect. The index is the value of W+, the element its probability.
func signedRank(n int) []float64 {
	// p[w] is the share of the subsets of 1..n whose sum is w.
	p := make([]float64, n*(n+1)/2+1)
	p[0] = 1
	top := 0
	for rank := 1; rank <= n; rank++ {
		for w := top; w >= 0; w-- {
			half := p[w] / 2
			p[w] = half
			p[w+rank] += half
		}
		top += rank
	}
	return p
}

// signedRankCritical returns the largest k with P(W+ <= k-1) <= alpha for n differences without
// ties. It is the rank of the interval's end among the sorted Walsh averages. It is 0 if 2^-n >
// alpha.
func signedRankCritical(n int, alpha float64) int {
	cum, k := 0.0, 0
	for _, q := range signedRank(n) {
		cum += q
		if cum > alpha*(1+1e-12) {
			break
		}
		k++
	}
	return k
}

// signedRankChance returns the two-sided probability of a signed-rank statistic at least as extreme
// as that of d. It counts Walsh averages; a zero counts half for each side. So zeros and ties make
// the probability larger, as they make the interval wider.
func signedRankChance(d []float64) float64 {
	var above, below int
	for i := range d {
		for j := i; j < len(d); j++ {
			switch sum := d[i] + d[j]; {
			case sum > 0:
				above++
			case sum < 0:
				below++
			}
		}
	}
	p := signedRank(len(d))
	cum := 0.0
	for _, q := range p[:len(p)-max(above, below)] {
		cum += q
	}
	return min(2*cum, 1)
}

// tChance returns P(|T| >= |t|) for Student's t.
func tChance(t, df float64) float64 {
	if math.IsNaN(t) { // 0/0: all ratios are 1
		return 1
	}
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.CDF(-math.Abs(t))
}

// tQuantile returns the quantile p of Student's t distribution with df degrees of freedom.
func tQuantile(p, df float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.Quantile(p)
}

func meanSD(x []float64) (mean, sd float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		sd += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sd / float64(len(x)-1))
}

// median returns the median of a sorted, non-empty slice.
func median(s []float64) float64 {
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

func pow10(x float64) float64 { return math.Pow(10, x) }

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Sample is the samples of all repeats of one variant, which are described together.
type Sample struct {
	repeats []*Series
	windows [][]int64 // number of samples in each window, by repeat
	counts  []int64   // number of samples by bucket
	n       int64
	clamped int64
}

// NewSample returns a sample of all repeats together. Repeats that are nil or empty add nothing.
func NewSample(repeats ...*Series) *Sample {
	s := &Sample{counts: make([]int64, buckets)}
	for _, r := range repeats {
		if r == nil || r.n == 0 {
			continue
		}
		s.repeats = append(s.repeats, r)
		s.n += r.n
		s.clamped += r.clamped
		windows := make([]int64, r.Windows())
		for w := range windows {
			for from, to := r.bounds(w); from < to; from++ {
				n := int64(r.counts[from])
				windows[w] += n
				s.counts[r.cells[from]] += n
			}
		}
		s.windows = append(s.windows, windows)
	}
	return s
}

// Count returns the number of samples.
func (s *Sample) Count() int64 { return s.n }

// An Estimate is a percentile with its two-sided 95 % interval. Value and High are the highest
// values of their buckets, Low is the lowest value of its bucket.
type Estimate struct {
	Percentile float64 `json:"p"`
	Value      int64   `json:"value"`
	Low        int64   `json:"low"`
	High       int64   `json:"high"`
	Samples    int64   `json:"samples"`
	// Effective is how many independent samples would give an interval of the same width.
	Effective float64 `json:"effective"`
	// Notes say which effects the interval does not include.
	Notes []string `json:"notes,omitempty"`
}

// A BlindError says that there are too few windows and repeats to see whether samples depend on
// each other. So no interval can be stated.
type BlindError struct{ Repeats, Windows int }

// Error names the number of windows or repeats that would be enough.
func (e *BlindError) Error() string {
	return fmt.Sprintf("no interval: %d windows in %d repeats do not show how much samples depend on each other; "+
		"want %d windows or %d repeats",
		e.Windows, e.Repeats, minBatches, MinRepeats)
}

// Interval returns percentile p (more than 0, less than 100) with its 95 % interval. It returns a
// *TooFewError if the sample cannot support the percentile, and a *BlindError if there are too few
// windows and repeats.
//
// The ends of the interval are two order statistics (Hahn and Meeker, Statistical Intervals,
// chapter 5: distribution-free). Their ranks are those for the effective number of samples: the
// number of samples divided by the design effect. The design effect is the variance of the number
// of samples beyond the percentile, divided by the variance for independent samples. It is
// estimated from windows and repeats (cluster.go). The method is Woodruff's (1952, JASA 47) for
// clusters and Heidelberger and Lewis's (1984, Operations Research 32) for queues, in the form of
// Korn and Graubard (1998) for small shares. TestCoverage simulates how often such intervals
// contain the true percentile.
//
// The interval is right for correlation that lasts up to a tenth of a repeat. From MinRepeats
// repeats on, it also includes the differences between repeats; with fewer repeats, a note says
// that it is about these repeats only. A stall that happens once an hour is usually not in a sample
// of minutes, and then not in its interval.
func (s *Sample) Interval(p float64) (Estimate, error) {
	if !(p > 0 && p < 100) {
		return Estimate{}, fmt.Errorf("percentile %v: want more than 0 and less than 100", p)
	}
	if need := Needed(p); s.n < need {
		return Estimate{}, &TooFewError{Percentile: p, Have: s.n, Need: need, Effective: float64(s.n)}
	}
	b := s.bucketAt(int64(math.Ceil(p/100*float64(s.n) - 1e-6)))
	d, ok := s.design(b)
	if !ok {
		return Estimate{}, s.blind()
	}
	n := float64(s.n)
	worth := d.worth(n)
	above, below, ok := ranks(worth, p/100)
	side := min(p, 100-p) / 100
	few := d.fewEvents(n * side)
	if !ok || few > 1 {
		more := max(leastBeyond/(worth*side), few)
		return Estimate{}, &TooFewError{Percentile: p, Have: s.n, Need: int64(math.Ceil(n * more)),
			Effective: n / d.effect}
	}
	e := Estimate{Percentile: p, Samples: s.n, Effective: n / d.effect, Notes: s.notes()}
	_, e.Value = bucketRange(b)
	_, e.High = bucketRange(s.bucketAt(s.n - int64(above*n/worth)))
	e.Low, _ = bucketRange(s.bucketAt(s.n - int64(below*n/worth)))
	return e, nil
}

// leastBeyond is the least number of effective samples beyond a percentile that must be expected.
// With fewer, the interval has no upper end: (1-q)^n > 2.5 %.
var leastBeyond = -math.Log(0.025)

// ranks returns two order statistics of n samples. The quantile u lies between them with a
// probability of 95 %. Both are counted from the largest sample. above is the number of samples
// larger than the upper one, below the number of samples larger than the lower one. n may be
// fractional.
func ranks(n, u float64) (above, below float64, ok bool) {
	// K is the number of samples larger than the true quantile. It has a binomial distribution.
	k := distuv.Binomial{N: n, P: 1 - u}
	whole := int(n)
	// above is the largest number for which P(K <= above) <= 2.5 %. below is the smallest number for
	// which P(K > below) <= 2.5 %.
	above = float64(sort.Search(whole, func(i int) bool { return binomialCDF(k, i) > 0.025 }) - 1)
	below = float64(sort.Search(whole, func(i int) bool { return binomialCDF(k, i) >= 0.975 }))
	return above, below, above >= 0 && below < float64(whole)
}

// binomialCDF returns P(K <= i) for a K with the distribution k. The number of trials may be
// fractional.
func binomialCDF(k distuv.Binomial, i int) float64 {
	if float64(i) >= k.N {
		return 1
	}
	return distuv.Beta{Alpha: k.N - float64(i), Beta: float64(i) + 1}.CDF(1 - k.P)
}

// bucketAt returns the bucket of the sample with this rank, from 1 to n.
func (s *Sample) bucketAt(rank int64) int {
	rank = max(rank, 1)
	for b, n := range s.counts {
		if rank -= n; rank <= 0 {
			return b
		}
	}
	return buckets - 1
}

// beyond returns the number of samples in buckets above b.
func (s *Sample) beyond(b int) (n int64) {
	for _, c := range s.counts[b+1:] {
		n += c
	}
	return n
}

// design computes the design effect (type design) for the share of samples in buckets above b.
func (s *Sample) design(b int) (design, bool) {
	q := float64(s.beyond(b)) / float64(s.n)
	z := make([][]float64, len(s.repeats))
	for i, r := range s.repeats {
		z[i] = make([]float64, r.Windows())
		for w, n := range s.windows[i] {
			z[i][w] = float64(r.beyond(w, b, n)) - q*float64(n)
		}
	}
	if q == 0 || q == 1 {
		q = 0.5 // all residuals are 0, so any variance gives the same result
	}
	return measure(z, float64(s.n), q)
}

func (s *Sample) blind() error {
	e := &BlindError{Repeats: len(s.repeats)}
	for _, r := range s.repeats {
		e.Windows += r.Windows()
	}
	return e
}

func (s *Sample) notes() (notes []string) {
	switch n := len(s.repeats); {
	case n == 1:
		notes = append(notes, "one repeat: the interval does not cover how much repeats differ")
	case n < MinRepeats:
		notes = append(notes, fmt.Sprintf("%d repeats: the interval does not cover how much repeats differ, which "+
			"%d would show", n, MinRepeats))
	}
	if s.clamped > 0 {
		notes = append(notes, fmt.Sprintf("%d samples outside 0 to 2^37 count as the nearest end", s.clamped))
	}
	return notes
}

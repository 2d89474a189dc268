// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Sample is the samples of all repeats of one variant that are described together.
type Sample struct {
	repeats []*Series
	windows [][]int64 // samples of each window, by repeat
	counts  []int64   // by bucket
	n       int64
	clamped int64
}

// NewSample pools repeats; nil and empty ones add nothing.
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
// values of their buckets, Low the lowest of its bucket.
type Estimate struct {
	Percentile float64 `json:"p"`
	Value      int64   `json:"value"`
	Low        int64   `json:"low"`
	High       int64   `json:"high"`
	Samples    int64   `json:"samples"`
	// Effective is the number of independent samples that they are worth.
	Effective float64 `json:"effective"`
	// Notes say what the interval does not cover.
	Notes []string `json:"notes,omitempty"`
}

// A BlindError says that too few windows and repeats show whether samples depend on each other,
// so that no interval can be stated.
type BlindError struct{ Repeats, Windows int }

// Error names the number that would be enough.
func (e *BlindError) Error() string {
	return fmt.Sprintf("no interval: %d windows in %d repeats do not show how much samples depend on each other; "+
		"want %d windows or %d repeats",
		e.Windows, e.Repeats, minBatches, MinRepeats)
}

// Interval returns percentile p (0 to 100, exclusive) with its 95 % interval. It returns a
// *TooFewError when the sample cannot support the percentile, and a *BlindError when there are
// too few windows and repeats.
//
// The interval lies between two order statistics (Hahn and Meeker, Statistical Intervals,
// chapter 5: distribution-free), at the ranks for the effective number of samples. That number
// is the real one divided by the design effect: the variance of the number of samples beyond
// the percentile, divided by the variance for independent samples. The design effect comes from
// windows and repeats (cluster.go). The method is Woodruff's (1952, JASA 47) for clusters and
// Heidelberger and Lewis's (1984, Operations Research 32) for queues, in the form of Korn and
// Graubard (1998) for small shares. TestCoverage simulates how often such intervals hold.
//
// It holds for correlation that lasts up to a tenth of a repeat. From MinRepeats repeats on, it
// also holds for differences between repeats; with fewer, a note says that it holds for these
// repeats only. A stall that happens once an hour is neither in a sample of minutes nor in its
// interval.
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

// leastBeyond is the number of effective samples that must be expected beyond a percentile for
// an upper end to exist: (1-q)^n <= 2.5 %.
var leastBeyond = -math.Log(0.025)

// ranks returns the two order statistics of n samples between which the quantile u lies with 95
// %, counted from the largest: above and below are the numbers of samples beyond them. n may be
// fractional.
func ranks(n, u float64) (above, below float64, ok bool) {
	// The number of samples beyond the true quantile is binomial.
	k := distuv.Binomial{N: n, P: 1 - u}
	whole := int(n)
	// The largest number with P(K <= above) <= 2.5 %, the smallest with P(K > below) <= 2.5 %.
	above = float64(sort.Search(whole, func(i int) bool { return binomialCDF(k, i) > 0.025 }) - 1)
	below = float64(sort.Search(whole, func(i int) bool { return binomialCDF(k, i) >= 0.975 }))
	return above, below, above >= 0 && below < float64(whole)
}

// binomialCDF is P(K <= i), also for a fractional number of trials.
func binomialCDF(k distuv.Binomial, i int) float64 {
	if float64(i) >= k.N {
		return 1
	}
	return distuv.Beta{Alpha: k.N - float64(i), Beta: float64(i) + 1}.CDF(1 - k.P)
}

// bucketAt returns the bucket of the sample of the given rank, 1 to n.
func (s *Sample) bucketAt(rank int64) int {
	rank = max(rank, 1)
	for b, n := range s.counts {
		if rank -= n; rank <= 0 {
			return b
		}
	}
	return buckets - 1
}

// beyond returns how many samples lie in buckets above b.
func (s *Sample) beyond(b int) (n int64) {
	for _, c := range s.counts[b+1:] {
		n += c
	}
	return n
}

// design returns the design for the share of samples in buckets above b.
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
		q = 0.5 // all residuals are zero: any variance is right
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

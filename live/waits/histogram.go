// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"encoding/json"
	"fmt"
	"math/bits"
)

// The buckets are those that the eBPF programs count in (internal/traffic/wait/c/wait.h): values
// below 128 ns have a bucket each; above, there are 64 buckets for every doubling, up to 2^36 ns
// (68 s). So a bucket is at most 1/64 (1.6 %) of its values wide.
const (
	subBits = 7
	half    = 1 << (subBits - 1)
	maxBits = 36
	Buckets = (maxBits-subBits)*half + 2*half // the number of buckets of a Histogram
)

// A Histogram counts durations in nanoseconds. The zero value and nil are empty histograms. Two
// histograms of one source subtract exactly.
type Histogram struct {
	counts []uint64 // by bucket; nil: empty
	n      uint64
}

// NewHistogram returns a histogram with these counts, one for each bucket. It keeps the slice.
func NewHistogram(counts []uint64) *Histogram {
	if len(counts) != Buckets {
		panic(fmt.Sprintf("waits: %d buckets, want %d", len(counts), Buckets))
	}
	h := &Histogram{counts: counts}
	for _, c := range counts {
		h.n += c
	}
	return h
}

// bucketOf returns the bucket of a value. Values of 2^36 and more are in the last one.
func bucketOf(v uint64) int {
	v = min(v, 1<<maxBits-1)
	k := max(bits.Len64(v)-subBits, 0)
	return k*half + int(v>>k)
}

// bucketRange returns the lowest and highest value of a bucket.
func bucketRange(b int) (low, high int64) {
	k := max(b/half-1, 0)
	low = int64(b-k*half) << k
	return low, low + 1<<k - 1
}

// Count returns the number of values.
func (h *Histogram) Count() uint64 {
	if h == nil {
		return 0
	}
	return h.n
}

// ValueAt returns the value at percentile p, 0 to 100, in nanoseconds: the middle of its bucket,
// at most 0.8 % from the true value. It is 0 if h is empty.
func (h *Histogram) ValueAt(p float64) (v int64) {
	rank := max(int64(min(p, 100)/100*float64(h.Count())+0.5), 1)
	h.Each(func(low, high int64, n uint64) bool {
		v = low + (high-low+1)/2
		rank -= int64(n)
		return rank > 0
	})
	return v
}

// Mean returns the arithmetic mean in nanoseconds; 0 if h is empty. Each value counts as the middle
// of its bucket.
func (h *Histogram) Mean() (mean float64) {
	h.Each(func(low, high int64, n uint64) bool {
		mean += float64(n) * float64(low+high) / 2 / float64(h.n)
		return true
	})
	return mean
}

// Each calls yield for every occupied bucket in rising order, with the bucket's lowest and highest
// value in nanoseconds, until yield returns false.
func (h *Histogram) Each(yield func(low, high int64, n uint64) bool) {
	if h == nil {
		return
	}
	for b, n := range h.counts {
		if n == 0 {
			continue
		}
		if low, high := bucketRange(b); !yield(low, high, n) {
			return
		}
	}
}

// Record adds one value in nanoseconds.
func (h *Histogram) Record(v int64) { h.RecordN(v, 1) }

// RecordN adds a value in nanoseconds n times.
func (h *Histogram) RecordN(v int64, n uint64) {
	if h.counts == nil {
		h.counts = make([]uint64, Buckets)
	}
	h.counts[bucketOf(uint64(max(v, 0)))] += n
	h.n += n
}

// Sub returns the values that h has and an earlier state of it had not. A bucket never gets less
// than none.
func (h *Histogram) Sub(earlier *Histogram) *Histogram {
	if earlier.Count() == 0 || h.Count() == 0 {
		return h
	}
	counts := make([]uint64, Buckets)
	for b, n := range h.counts {
		counts[b] = n - min(n, earlier.counts[b])
	}
	return NewHistogram(counts)
}

// Merge returns the sum of histograms.
func Merge(hs ...*Histogram) *Histogram {
	counts := make([]uint64, Buckets)
	for _, h := range hs {
		if h == nil {
			continue
		}
		for b, n := range h.counts {
			counts[b] += n
		}
	}
	return NewHistogram(counts)
}

// Percentiles are the values of a Histogram in output, in nanoseconds.
type Percentiles struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean"`
	P50   int64   `json:"p50"`
	P90   int64   `json:"p90"`
	P99   int64   `json:"p99"`
	P999  int64   `json:"p99.9"`
	Max   int64   `json:"max"`
}

// Percentiles returns the values that people ask for.
func (h *Histogram) Percentiles() Percentiles {
	return Percentiles{Count: h.Count(), Mean: h.Mean(), P50: h.ValueAt(50), P90: h.ValueAt(90), P99: h.ValueAt(99),
		P999: h.ValueAt(99.9), Max: h.ValueAt(100)}
}

// wire is the JSON form. UnmarshalJSON reads only Buckets.
type wire struct {
	Percentiles
	// Buckets lists the occupied buckets: the lowest value in nanoseconds, and the count.
	Buckets [][2]uint64 `json:"buckets"`
}

// MarshalJSON writes the percentiles and the occupied buckets.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	w := wire{Percentiles: h.Percentiles(), Buckets: [][2]uint64{}}
	h.Each(func(low, _ int64, n uint64) bool {
		w.Buckets = append(w.Buckets, [2]uint64{uint64(low), n})
		return true
	})
	return json.Marshal(w)
}

// UnmarshalJSON reads the buckets that MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	counts := make([]uint64, Buckets)
	for _, x := range w.Buckets {
		counts[bucketOf(x[0])] += x[1]
	}
	*h = *NewHistogram(counts)
	return nil
}

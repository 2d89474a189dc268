// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of every histogram: 1 ns to 137 s with three significant digits (a bucket is
// at most 0.1 % wide). All histograms have the same buckets, so they can be merged.
const (
	lowest  = 1
	highest = 1 << 37
	digits  = 3
)

// A Histogram counts values from 0 to 2^37: nanoseconds up to 137 s, or bytes. Record does not
// allocate after its first call. The zero value is an empty histogram. A Histogram is not safe for
// concurrent use.
//
// Package hdr keeps a count for each of 28,673 buckets, 230 KB, although most histograms use only a
// few hundred buckets. Handling empty buckets took half the time of a report. So a histogram that
// was read, or is part of a series, stores only its occupied buckets. A histogram that is recorded
// or merged stores all of them.
type Histogram struct {
	dense  []int64  // count by bucket; nil: cells and counts are used instead
	cells  []uint16 // occupied buckets, in rising order
	counts []int64  // count of each of cells
	n      int64
	// clamped is the number of values outside the range. They were recorded at the nearest end of the
	// range.
	clamped int64
}

// NewHistogram returns an empty histogram that stores all buckets.
func NewHistogram() *Histogram { return &Histogram{dense: make([]int64, buckets)} }

// Rising returns a histogram of values that come in rising order, such as those of another histogram. It
// stores only occupied buckets. Values outside the range are treated as in Record.
func Rising(values iter.Seq[int64]) *Histogram {
	h := &Histogram{}
	for v := range values {
		if v < 0 || v > highest {
			h.clamped++
		}
		b := uint16(bucketOf(min(max(v, 0), highest)))
		if last := len(h.cells) - 1; last < 0 || h.cells[last] != b {
			h.cells, h.counts = append(h.cells, b), append(h.counts, 0)
		}
		h.counts[len(h.counts)-1]++
		h.n++
	}
	return h
}

// spread converts h to the form that stores all buckets.
func (h *Histogram) spread() {
	h.dense = make([]int64, buckets)
	for i, b := range h.cells {
		h.dense[b] = h.counts[i]
	}
	h.cells, h.counts = nil, nil
}

// Record adds one value. A value outside the range is recorded at the nearest end of the range and
// counted as clamped.
func (h *Histogram) Record(v int64) {
	if v < 0 {
		v = 0
		h.clamped++
	} else if v > highest {
		v = highest
		h.clamped++
	}
	h.add(bucketOf(v), 1)
}

func (h *Histogram) add(bucket int, n int64) {
	if h.dense == nil {
		h.spread()
	}
	h.dense[bucket] += n
	h.n += n
}

// occupied calls yield for every bucket that is not empty, in rising order.
func (h *Histogram) occupied(yield func(bucket int, count int64) bool) {
	if h == nil || h.n == 0 {
		return
	}
	for b, n := range h.dense {
		if n != 0 && !yield(b, n) {
			return
		}
	}
	for i, b := range h.cells {
		if !yield(int(b), h.counts[i]) {
			return
		}
	}
}

// Count returns the number of values.
func (h *Histogram) Count() int64 {
	if h == nil {
		return 0
	}
	return h.n
}

// Clamped returns how many values were outside the range.
func (h *Histogram) Clamped() int64 {
	if h == nil {
		return 0
	}
	return h.clamped
}

// Mean returns the arithmetic mean; 0 if h is empty. Each value counts as the middle of its bucket.
func (h *Histogram) Mean() (mean float64) {
	for b, n := range h.occupied {
		low, high := bucketRange(b)
		mean += float64(n) * float64(low+(high-low+1)/2) / float64(h.n)
	}
	return mean
}

// Max returns the largest value; 0 if h is empty.
func (h *Histogram) Max() int64 { return h.ValueAt(100) }

// Min returns the smallest value; 0 if h is empty.
func (h *Histogram) Min() int64 {
	for b := range h.occupied {
		low, _ := bucketRange(b)
		return low
	}
	return 0
}

// ValueAt returns the value at percentile p, as the highest value of its bucket; 0 if h is empty.
// Unlike Percentile, it does not check whether the sample is large enough.
func (h *Histogram) ValueAt(p float64) int64 {
	if p <= 0 {
		return h.Min()
	}
	// Use the nearest rank, as every HdrHistogram library does.
	rank := int64(min(p, 100)/100*float64(h.Count()) + 0.5)
	rank = min(max(rank, 1), h.Count())
	for b, n := range h.occupied {
		if rank -= n; rank <= 0 {
			_, high := bucketRange(b)
			return high
		}
	}
	return 0
}

// Buckets calls yield for every occupied bucket in rising order, with the bucket's lowest and
// highest value, until yield returns false.
func (h *Histogram) Buckets(yield func(low, high, count int64) bool) {
	for b, n := range h.occupied {
		if low, high := bucketRange(b); !yield(low, high, n) {
			return
		}
	}
}

// Reset makes h empty and keeps its memory.
func (h *Histogram) Reset() {
	clear(h.dense)
	*h = Histogram{dense: h.dense}
}

// Merge returns the sum of histograms. Histograms that are nil or empty add nothing.
func Merge(hs ...*Histogram) *Histogram {
	sum := NewHistogram()
	for _, h := range hs {
		for b, n := range h.occupied {
			sum.add(b, n)
		}
		sum.clamped += h.Clamped()
	}
	return sum
}

// wire is the JSON form: the histogram in HDR's V2 compressed base64 form, and a summary for
// readers without an HDR library. UnmarshalJSON reads only "hdr" and "clamped".
type wire struct {
	Count   int64   `json:"count"`
	Min     int64   `json:"min"`
	Mean    float64 `json:"mean"`
	P50     int64   `json:"p50"`
	P99     int64   `json:"p99"`
	Max     int64   `json:"max"`
	Clamped int64   `json:"clamped,omitempty"`
	HDR     string  `json:"hdr,omitempty"`
}

// MarshalJSON writes the histogram in HDR's V2 compressed base64 form, which every HdrHistogram
// library reads, and a short summary.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	w := wire{Count: h.Count()}
	if w.Count > 0 {
		text, err := h.encode()
		if err != nil {
			return nil, fmt.Errorf("encode histogram: %w", err)
		}
		w.Min, w.Mean, w.Max = h.Min(), h.Mean(), h.Max()
		w.P50, w.P99 = h.ValueAt(50), h.ValueAt(99)
		w.Clamped, w.HDR = h.clamped, string(text)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*h = Histogram{clamped: w.Clamped}
	if w.HDR == "" {
		if w.Count != 0 {
			return fmt.Errorf("histogram: %d values but no buckets", w.Count)
		}
		return nil
	}
	if err := h.decode([]byte(w.HDR)); err != nil {
		return fmt.Errorf("decode histogram: %w", err)
	}
	if h.n != w.Count {
		return fmt.Errorf("histogram: count %d, but its buckets hold %d", w.Count, h.n)
	}
	return nil
}

func (h *Histogram) encode() ([]byte, error) {
	w := writers.Get().(*hdrWriter)
	defer writers.Put(w)
	return w.encode(nil, h.occupied)
}

// decode reads a histogram of any range and precision. If its buckets differ from ours, each count
// goes to the bucket that contains the lower end of the read bucket.
func (h *Histogram) decode(text []byte) error {
	r := readers.Get().(*hdrReader)
	defer readers.Put(r)
	cells, counts, err := r.decoded(text)
	if err == nil {
		h.cells, h.counts = slices.Clone(cells), slices.Clone(counts)
		for _, n := range counts {
			h.n += n
		}
	}
	if !errors.Is(err, errGeometry) {
		return err
	}
	other, err := hdr.Decode(text)
	if err != nil {
		return err
	}
	for _, bar := range other.Distribution() {
		if bar.Count == 0 {
			continue
		}
		if bar.From > highest {
			h.clamped += bar.Count
		}
		h.add(bucketOf(min(bar.From, highest)), bar.Count)
	}
	return nil
}

// A Step is one point of a cumulative distribution.
type Step struct {
	Percentile float64 `json:"p"`
	NS         int64   `json:"ns"`
}

// Curve returns the latency at percentiles that are evenly spaced in log(1/(1-p)). So P90, P99 and
// P99.9 have equal distances in a plot. Curve ends at the last percentile that the sample can
// support.
func Curve(h *Histogram, perDecade int) []Step {
	if h.Count() == 0 || perDecade < 1 {
		return nil
	}
	var steps []Step
	for i := 1; ; i++ {
		p := 100 * (1 - pow10(-float64(i)/float64(perDecade)))
		v, err := Percentile(h, p)
		if err != nil {
			if p < 50 { // below P50, the samples below p are the fewer
				continue
			}
			return steps
		}
		steps = append(steps, Step{p, v})
	}
}

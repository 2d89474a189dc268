// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"errors"
	"fmt"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of every histogram: 1 ns to 137 s with three significant
// digits (a bucket is at most 0.1 % wide). One geometry makes all mergeable.
const (
	lowest  = 1
	highest = 1 << 37
	digits  = 3
)

// A Histogram counts values from 0 to 2^37: nanoseconds up to 137 s, or bytes.
// Record does not allocate. The zero value is an empty histogram; it is not
// safe for concurrent use.
type Histogram struct {
	h *hdr.Histogram
	// Clamped counts values outside the range, recorded at its nearest end.
	clamped int64
}

// NewHistogram returns an empty histogram with its buckets allocated.
func NewHistogram() *Histogram { return &Histogram{h: hdr.New(lowest, highest, digits)} }

// Record adds one value. Values below 0 or above the range are recorded
// at the nearest end and counted as clamped; none is dropped.
func (h *Histogram) Record(v int64) {
	if h.h == nil {
		h.h = hdr.New(lowest, highest, digits)
	}
	if v < 0 {
		v = 0
		h.clamped++
	} else if v > highest {
		v = highest
		h.clamped++
	}
	if err := h.h.RecordValue(v); err != nil {
		panic(err) // the range was checked above
	}
}

// Count returns the number of values.
func (h *Histogram) Count() int64 {
	if h == nil || h.h == nil {
		return 0
	}
	return h.h.TotalCount()
}

// Clamped returns how many values were outside the range.
func (h *Histogram) Clamped() int64 {
	if h == nil {
		return 0
	}
	return h.clamped
}

// Mean returns the arithmetic mean, 0 when empty.
func (h *Histogram) Mean() float64 {
	if h.Count() == 0 {
		return 0
	}
	return h.h.Mean()
}

// Max returns the largest value, 0 when empty.
func (h *Histogram) Max() int64 {
	if h.Count() == 0 {
		return 0
	}
	return h.h.ValueAtPercentile(100) // a third of the time of hdr.Histogram.Max
}

// Min returns the smallest value, 0 when empty.
func (h *Histogram) Min() int64 {
	if h.Count() == 0 {
		return 0
	}
	return h.h.ValueAtPercentile(0)
}

// ValueAt returns the value at percentile p without asking whether the sample
// can carry it; Percentile does ask.
func (h *Histogram) ValueAt(p float64) int64 {
	if h.Count() == 0 {
		return 0
	}
	return h.h.ValueAtPercentile(p)
}

// Buckets calls yield for every occupied bucket in order, with its lowest and
// highest value, until yield returns false.
func (h *Histogram) Buckets(yield func(low, high, count int64) bool) {
	if h.Count() == 0 {
		return
	}
	for _, bar := range h.h.Distribution() {
		if bar.Count != 0 && !yield(bar.From, bar.To, bar.Count) {
			return
		}
	}
}

// Reset empties h and keeps its buckets.
func (h *Histogram) Reset() {
	h.clamped = 0
	if h.h != nil {
		h.h.Reset()
	}
}

// Merge returns the sum of histograms; nil and empty ones add nothing.
func Merge(hs ...*Histogram) *Histogram {
	sum := NewHistogram()
	for _, h := range hs {
		if h.Count() == 0 {
			continue
		}
		if dropped := sum.h.Merge(h.h); dropped != 0 {
			sum.clamped += dropped
		}
		sum.clamped += h.clamped
	}
	return sum
}

// wire is the JSON form: the HDR V2 compressed base64 log plus what a reader
// without an HDR library wants to know. Only "hdr" and "clamped" are read back.
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

// MarshalJSON writes the histogram in HDR's V2 compressed base64 form, which
// every HdrHistogram library reads, with a short summary beside it.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	w := wire{Count: h.Count()}
	if w.Count > 0 {
		b, mean, err := h.encode()
		if err != nil {
			return nil, fmt.Errorf("encode histogram: %w", err)
		}
		w.Min, w.Mean, w.Max = h.Min(), mean, h.Max()
		w.P50, w.P99 = h.ValueAt(50), h.ValueAt(99)
		w.Clamped, w.HDR = h.clamped, string(b)
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
	d, err := decode([]byte(w.HDR))
	if err != nil {
		return fmt.Errorf("decode histogram: %w", err)
	}
	if d.TotalCount() != w.Count {
		return fmt.Errorf("histogram: count %d, but its buckets hold %d", w.Count, d.TotalCount())
	}
	h.h = d
	return nil
}

// encode writes the buckets and returns the mean, for which package hdr would go
// through all of them once more. Those of another geometry, which only a file can
// have, are its to write.
func (h *Histogram) encode() (text []byte, mean float64, err error) {
	all := h.h.Export()
	if len(all.Counts) < buckets || all.LowestTrackableValue != lowest || all.HighestTrackableValue != highest || all.SignificantFigures != digits {
		text, err = h.h.Encode(hdr.V2CompressedEncodingCookieBase)
		return text, h.Mean(), err
	}
	total := float64(h.h.TotalCount())
	text, err = new(hdrWriter).encode(nil, func(yield func(int, int64) bool) {
		for b, n := range all.Counts {
			if n == 0 {
				continue
			}
			low, high := bucketRange(b)
			mean += float64(n) * float64(low+(high-low+1)/2) / total
			if !yield(b, n) {
				return
			}
		}
	})
	return text, mean, err
}

func decode(text []byte) (*hdr.Histogram, error) {
	all := hdr.New(lowest, highest, digits).Export()
	err := new(hdrReader).decode(text, func(bucket int, n int64) { all.Counts[bucket] = n })
	if errors.Is(err, errGeometry) {
		return hdr.Decode(text)
	}
	if err != nil {
		return nil, err
	}
	return hdr.Import(all), nil
}

// A Step is one point of the cumulative distribution.
type Step struct {
	Percentile float64 `json:"p"`
	NS         int64   `json:"ns"`
}

// Curve returns the latency at percentiles spaced evenly in log(1/(1-p)), as a
// plot over "nines" needs them, up to the last one the sample can carry.
func Curve(h *Histogram, perDecade int) []Step {
	if h.Count() == 0 || perDecade < 1 {
		return nil
	}
	var steps []Step
	for i := 1; ; i++ {
		p := 100 * (1 - pow10(-float64(i)/float64(perDecade)))
		v, err := Percentile(h, p)
		if err != nil {
			if p < 50 { // The thin side is the left one here.
				continue
			}
			return steps
		}
		steps = append(steps, Step{p, v})
	}
}

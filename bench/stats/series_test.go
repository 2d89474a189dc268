// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
)

// TestBuckets checks that our buckets are the same as those of package hdr. Otherwise a window's
// percentiles would differ from those of a histogram.
func TestBuckets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := []int64{0, 1, 2047, 2048, 4095, 4096, highest - 1, highest}
	for range 300 {
		values = append(values, rng.Int64N(1<<rng.IntN(38)))
	}
	for _, v := range values {
		h := hdr.New(lowest, highest, digits)
		if err := h.RecordValue(v); err != nil {
			t.Fatal(err)
		}
		bars := h.Distribution()
		want := bars[len(bars)-1]
		low, high := bucketRange(bucketOf(v))
		if low != want.From || high != want.To {
			t.Fatalf("bucket of %d is %d to %d, hdr's %d to %d", v, low, high, want.From, want.To)
		}
	}
	if got := bucketOf(highest); got != buckets-1 {
		t.Errorf("the last bucket is %d, want %d", got, buckets-1)
	}
}

// threeWindows returns a series of three windows. The first has 0 to 9 ms, the second is empty, the
// third has one large and two clamped values.
func threeWindows() *Series {
	r := NewRecorder(DefaultWindow, 1)
	for i := range int64(10) {
		r.Record(i * 1e6)
	}
	r.Advance(2)
	r.Advance(1) // an earlier window: does nothing
	for _, v := range []int64{5e9, -1, highest + 1} {
		r.Record(v)
	}
	return r.Series()
}

func TestSeries(t *testing.T) {
	s := threeWindows()
	if s.Windows() != 3 || s.Count() != 13 || s.Window() != DefaultWindow {
		t.Errorf("%d windows, %d samples, %d ns", s.Windows(), s.Count(), s.Window())
	}
	if from, to := s.bounds(1); from != to {
		t.Error("the second window is not empty")
	}
	want := filled(10, func(i int) int64 { return int64(i) * 1e6 })
	for _, v := range []int64{5e9, -1, highest + 1} {
		want.Record(v)
	}
	if got := s.Histogram(); !same(got, want) || got.Clamped() != 2 {
		t.Errorf("histogram of %d values, clamped %d; want %d and 2", got.Count(), got.Clamped(), want.Count())
	}
	one := OneWindow(want)
	if one.Windows() != 1 || one.Window() != 0 || !same(one.Histogram(), want) || one.Histogram().Clamped() != 2 {
		t.Error("OneWindow is not the histogram it was given")
	}
	if e := OneWindow(nil); e.Windows() != 1 || e.Count() != 0 {
		t.Errorf("OneWindow(nil): %d windows, %d samples", e.Windows(), e.Count())
	}
}

func TestMergeSeries(t *testing.T) {
	short := NewRecorder(DefaultWindow, 1)
	short.Record(3e6)
	short.Record(3e6 + 1e5)
	merged, err := MergeSeries(nil, threeWindows(), short.Series())
	if err != nil {
		t.Fatal(err)
	}
	if merged.Windows() != 3 || merged.Count() != 15 || merged.clamped != 2 {
		t.Errorf("%d windows, %d samples, %d clamped", merged.Windows(), merged.Count(), merged.clamped)
	}
	from, to := merged.bounds(0)
	if d := cmp.Diff([]uint32{1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1}, merged.counts[from:to]); d != "" {
		t.Errorf("first window: -want +got\n%s", d)
	}
	other := NewRecorder(1e9, 1)
	if _, err := MergeSeries(threeWindows(), other.Series()); err == nil {
		t.Error("windows of different length were merged")
	}
}

func TestSeriesJSON(t *testing.T) {
	s := threeWindows()
	var got Series
	b := reread(t, s, &got)
	if d := cmp.Diff(s, &got, cmp.AllowUnexported(Series{})); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	unreadable(t, &got, map[string]string{
		"wrong count": strings.Replace(string(b), `"count":13`, `"count":12`, 1),
		"not hdr":     `{"windowNs":1,"count":1,"hdr":["AAAA"]}`,
		"negative":    `{"windowNs":-1}`,
	})
}

func TestRecorderDoesNotAllocate(t *testing.T) {
	r := NewRecorder(DefaultWindow, 10_000)
	w := 0
	if n := testing.AllocsPerRun(1000, func() {
		r.Record(123456)
		w++
		r.Advance(w)
	}); n != 0 {
		t.Errorf("a window takes %v allocations", n)
	}
}

func FuzzSeriesJSON(f *testing.F) {
	b, err := json.Marshal(threeWindows())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Series
		if json.Unmarshal(b, &s) != nil {
			return
		}
		again, err := json.Marshal(&s)
		if err != nil {
			t.Fatalf("read %q but cannot write it: %v", b, err)
		}
		var same Series
		if err := json.Unmarshal(again, &same); err != nil || same.Count() != s.Count() ||
			same.Windows() != s.Windows() {
			t.Fatalf("%q became %q: %v", b, again, err)
		}
		_, _ = NewSample(&s).Interval(99)
	})
}

func BenchmarkRecorder(b *testing.B) {
	r := NewRecorder(DefaultWindow, b.N/1000+1)
	rng := rand.New(rand.NewPCG(1, 2))
	var v [1 << 12]int64
	for i := range v {
		v[i] = int64(rng.ExpFloat64() * 1e5)
	}
	for i := range b.N {
		r.Record(v[i%len(v)])
		if i%1000 == 0 {
			r.Advance(i / 1000)
		}
	}
}

// oneRepeat returns the series of a repeat of 30 s at 20,000 requests a second. Its 300 windows
// have a tail from stalls.
func oneRepeat() *Series {
	rng := rand.New(rand.NewPCG(1, 2))
	r := NewRecorder(DefaultWindow, 300)
	for i := range 300 * 2000 {
		r.Advance(i / 2000)
		v := 5e4 + rng.ExpFloat64()*5e4
		if rng.IntN(1000) == 0 {
			v += rng.ExpFloat64() * 5e6
		}
		r.Record(int64(v))
	}
	return r.Series()
}

// benchmarkJSON writes v and reads it into the value that fresh returns. It also reports the size
// in bytes.
func benchmarkJSON(b *testing.B, v any, fresh func() any) {
	text, err := json.Marshal(v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(v); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(text)), "bytes")
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if err := json.Unmarshal(text, fresh()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSeriesJSON writes and reads the series of a repeat.
func BenchmarkSeriesJSON(b *testing.B) {
	benchmarkJSON(b, oneRepeat(), func() any { return new(Series) })
}

// BenchmarkAdvance closes windows of 2000 samples.
func BenchmarkAdvance(b *testing.B) {
	for _, tt := range []struct {
		name string
		tail float64 // in ns
	}{{"narrow", 5e4}, {"stalls", 5e7}} {
		b.Run(tt.name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			var v [2000]int64
			for i := range v {
				v[i] = int64(5e4 + rng.ExpFloat64()*5e4)
				if i%1000 == 0 {
					v[i] += int64(tt.tail)
				}
			}
			const most = 1000
			r := NewRecorder(DefaultWindow, most)
			var spent []int64
			for b.Loop() {
				if len(r.s.ends) == most {
					r = NewRecorder(DefaultWindow, most)
				}
				for _, x := range v {
					r.Record(x)
				}
				began := time.Now()
				r.Advance(len(r.s.ends) + 1)
				spent = append(spent, int64(time.Since(began)))
			}
			slices.Sort(spent) // the median is used, because other programs use the processor too
			b.ReportMetric(float64(spent[len(spent)/2]), "ns/window")
		})
	}
}

func BenchmarkHistogramJSON(b *testing.B) {
	benchmarkJSON(b, oneRepeat().Histogram(), func() any { return new(Histogram) })
}

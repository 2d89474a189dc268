// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestMerge checks that Merge gives the percentiles of all samples together, not an average of
// percentiles.
func TestMerge(t *testing.T) {
	a := filled(9000, func(int) int64 { return 100 })
	b := filled(1000, func(int) int64 { return 1_000_000 })
	m := Merge(a, nil, &Histogram{}, b)
	if m.Count() != 10_000 {
		t.Fatalf("count %d, want 10000", m.Count())
	}
	if got := m.ValueAt(89.9); got != 100 {
		t.Errorf("P89.9 = %d, want 100", got)
	}
	if got := m.ValueAt(90.1); math.Abs(float64(got)-1e6) > 1e3 {
		t.Errorf("P90.1 = %d, want about 1000000", got)
	}
	if a.Count() != 9000 || b.Count() != 1000 {
		t.Error("merging changed its arguments")
	}
}

func TestHistogramKeepsEverything(t *testing.T) {
	h := NewHistogram()
	for _, v := range []int64{-5, 0, 1, 1 << 37, 1<<62 + 1} {
		h.Record(v)
	}
	if h.Count() != 5 || h.Clamped() != 2 {
		t.Errorf("count %d, clamped %d, want 5 and 2", h.Count(), h.Clamped())
	}
	var zero Histogram
	zero.Record(3)
	if zero.Count() != 1 {
		t.Error("the zero histogram does not record")
	}
}

func TestHistogramBuckets(t *testing.T) {
	h := filled(6, func(i int) int64 { return int64(i) / 2 * 5000 })
	var got [][3]int64
	h.Buckets(func(low, high, count int64) bool {
		got = append(got, [3]int64{low, high, count})
		return len(got) < 2
	})
	if want := [][3]int64{{0, 0, 2}, {5000, 5003, 2}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	(*Histogram)(nil).Buckets(func(_, _, _ int64) bool { t.Error("a bucket of nothing"); return true })
}

// reread writes v as JSON, reads the JSON into got, and returns the JSON.
func reread(t *testing.T, v, got any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHistogramJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	h := filled(5000, func(int) int64 { return int64(1e5 * math.Exp(rng.NormFloat64())) })
	h.Record(-1)
	var got Histogram
	b := reread(t, h, &got)
	if !same(&got, h) || got.Clamped() != 1 {
		t.Errorf("read back %d values, clamped %d; want %d and 1", got.Count(), got.Clamped(), h.Count())
	}
	var w map[string]any
	if err := json.Unmarshal(b, &w); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(w["hdr"].(string), "HISTFAAA") { // the beginning of V2 compressed in base64
		t.Errorf("hdr is %.20q..., want HISTFAAA...", w["hdr"])
	}

	if reread(t, &Histogram{}, &got); got.Count() != 0 {
		t.Errorf("empty histogram: %d values", got.Count())
	}
	unreadable(t, &got, map[string]string{
		"count without buckets": `{"count": 3}`,
		"wrong count":           strings.Replace(string(b), `"count":5001`, `"count":5000`, 1),
		"not hdr":               `{"count": 1, "hdr": "AAAA"}`,
		"not base64":            `{"count": 1, "hdr": "%"}`,
	})
}

// unreadable checks that none of the given JSON texts can be read into got.
func unreadable(t *testing.T, got any, bad map[string]string) {
	t.Helper()
	for name, text := range bad {
		if err := json.Unmarshal([]byte(text), got); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRecordAfterReading checks that a histogram that was read can record further values.
func TestRecordAfterReading(t *testing.T) {
	h := filled(100, func(i int) int64 { return int64(i % 7 * 1000) })
	var got Histogram
	reread(t, h, &got)
	for _, v := range []int64{0, 2500, 1 << 40} {
		h.Record(v)
		got.Record(v)
	}
	if !same(&got, h) || got.Clamped() != 1 || got.Max() != h.Max() {
		t.Errorf("%d values up to %d, want %d up to %d", got.Count(), got.Max(), h.Count(), h.Max())
	}
	got.Reset()
	if got.Count() != 0 || got.Clamped() != 0 || got.Max() != 0 {
		t.Errorf("%d values after Reset", got.Count())
	}
}

func TestCurve(t *testing.T) {
	h := filled(100_000, func(i int) int64 { return int64(i) })
	steps := Curve(h, 1)
	// P99.99 is the last of these percentiles with ten samples beyond it.
	want := []Step{{90, 89_999}, {99, 98_999}, {99.9, 99_899}, {99.99, 99_989}}
	if len(steps) != len(want) {
		t.Fatalf("got %v, want %v", steps, want)
	}
	for i, s := range steps { // a bucket is 0.1 % wide
		if math.Abs(s.Percentile-want[i].Percentile) > 1e-9 ||
			math.Abs(float64(s.NS-want[i].NS)) > 1e-3*float64(want[i].NS) {
			t.Errorf("got %v, want %v", s, want[i])
		}
	}
	if got := Curve(filled(10, func(int) int64 { return 1 }), 4); len(got) != 0 {
		t.Errorf("curve of 10 samples: %v", got)
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	h := NewHistogram()
	if n := testing.AllocsPerRun(1000, func() { h.Record(123456) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}

func FuzzHistogramJSON(f *testing.F) {
	for _, n := range []int{0, 1, 100} {
		b, err := json.Marshal(filled(n, func(i int) int64 { return int64(i * i * 1000) }))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"count":1,"hdr":"HISTFAAAAAA="}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Histogram
		if json.Unmarshal(b, &h) != nil {
			return
		}
		again, err := json.Marshal(&h)
		if err != nil {
			t.Fatalf("read %q but cannot write it: %v", b, err)
		}
		var same Histogram
		if err := json.Unmarshal(again, &same); err != nil || same.Count() != h.Count() {
			t.Fatalf("%q became %q: %v", b, again, err)
		}
		Merge(&h, &same)
		if c := Curve(&h, 4); !slices.IsSortedFunc(c, func(a, b Step) int { return cmp.Compare(a.NS, b.NS) }) {
			t.Fatalf("curve %v falls", c)
		}
	})
}

// TestRising checks that values in rising order give the same histogram as Record.
func TestRising(t *testing.T) {
	values := []int64{-1, 0, 0, 1, 77, 77, 1e6, 1e6 + 1, 1e9, 1 << 37, 1 << 38}
	want := NewHistogram()
	for _, v := range values {
		want.Record(v)
	}
	got := Rising(slices.Values(values))
	if got.Count() != want.Count() || got.Clamped() != want.Clamped() || got.Mean() != want.Mean() {
		t.Errorf("%d values, %d clamped, mean %v; want %d, %d, %v", got.Count(), got.Clamped(), got.Mean(), want.Count(),
			want.Clamped(), want.Mean())
	}
	for _, p := range []float64{1, 20, 50, 90, 100} {
		if got.ValueAt(p) != want.ValueAt(p) {
			t.Errorf("P%v is %d, want %d", p, got.ValueAt(p), want.ValueAt(p))
		}
	}
	if n := Rising(slices.Values([]int64(nil))).Count(); n != 0 {
		t.Errorf("no values: %d", n)
	}
}

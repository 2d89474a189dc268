// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// many returns histograms of many kinds, by name.
func many() map[string]*Histogram {
	rng := rand.New(rand.NewPCG(5, 6))
	hs := map[string]*Histogram{
		"zero":     filled(3, func(int) int64 { return 0 }),
		"highest":  filled(1, func(int) int64 { return highest }),
		"ends":     filled(2, func(i int) int64 { return int64(i) * highest }),
		"each":     filled(5000, func(i int) int64 { return int64(i) }),
		"wide":     filled(100_000, func(int) int64 { return int64(math.Exp(rng.Float64() * 25)) }),
		"latency":  filled(100_000, func(int) int64 { return int64(1e5 * math.Exp(rng.NormFloat64())) }),
		"one each": filled(30_000, func(i int) int64 { low, _ := bucketRange(i % buckets); return low }),
	}
	big := NewHistogram()
	for _, n := range []int64{1 << 7, 1 << 14, 1<<34 + 1, 1 << 55, 1 << 56, 1 << 57, 1 << 62} {
		big.add(bucketOf(n>>25), n)
	}
	hs["many of one"] = big
	return hs
}

// library returns package hdr's histogram of the values of h.
func library(h *Histogram) *hdr.Histogram {
	l := hdr.New(lowest, highest, digits)
	for b, n := range h.occupied {
		low, _ := bucketRange(b)
		_ = l.RecordValues(low, n)
	}
	return l
}

// same reports whether two histograms have the same counts in the same buckets.
func same(a, b *Histogram) bool {
	return a.Count() == b.Count() && maps.Equal(maps.Collect(a.occupied), maps.Collect(b.occupied))
}

// TestWireAgainstLibrary checks that package hdr can read what encode writes, and the reverse. The
// summary must be right too.
func TestWireAgainstLibrary(t *testing.T) {
	for name, h := range many() {
		want := library(h)
		text, err := h.encode()
		if err != nil {
			t.Fatal(name, err)
		}
		theirs, err := hdr.Decode(text)
		if err != nil || !theirs.Equals(want) {
			t.Errorf("%s: package hdr reads another one (%v)", name, err)
		}
		if text, err = want.Encode(hdr.V2CompressedEncodingCookieBase); err != nil {
			t.Fatal(name, err)
		}
		var ours Histogram
		if err := ours.decode(text); err != nil || !same(&ours, h) {
			t.Errorf("%s: read another one than package hdr wrote (%v)", name, err)
		}
		for _, h := range []*Histogram{h, &ours} {
			if h.Mean() != want.Mean() || h.Min() != want.Min() || h.Max() != want.Max() ||
				h.Count() != want.TotalCount() {
				t.Errorf("%s: mean %v, min %d, max %d; package hdr says %v, %d, %d", name, h.Mean(), h.Min(), h.Max(),
					want.Mean(), want.Min(), want.Max())
			}
			for _, p := range []float64{-1, 0, 0.01, 1, 50, 90, 99, 99.9, 99.99, 99.999, 100, 101} {
				if h.ValueAt(p) != want.ValueAtPercentile(p) {
					t.Errorf("%s: P%v is %d, package hdr says %d", name, p, h.ValueAt(p), want.ValueAtPercentile(p))
				}
			}
		}
	}
}

// TestOtherRanges checks that a histogram with another range is read into our buckets.
func TestOtherRanges(t *testing.T) {
	for name, c := range map[string]struct {
		highest, value, want, clamped int64
		digits                        int
	}{
		"narrow": {1000, 500, 500, 0, 2}, "wide": {1 << 50, 1 << 40, highest, 1, 3},
		"coarse": {1 << 20, 100_000, 98_304, 0, 1},
	} {
		other := hdr.New(1, c.highest, c.digits)
		_ = other.RecordValues(c.value, 3)
		text, err := other.Encode(hdr.V2CompressedEncodingCookieBase)
		if err != nil {
			t.Fatal(err)
		}
		var h Histogram
		if err := h.decode(text); err != nil || h.Count() != 3 || h.Min() != c.want || h.Clamped() != 3*c.clamped {
			t.Errorf("%s: %d values of %d, %d clamped (%v); want 3 of %d", name, h.Count(), h.Min(), h.Clamped(), err,
				c.want)
		}
	}
}

func TestWireRefuses(t *testing.T) {
	text, err := filled(1000, func(i int) int64 { return int64(i) * 1000 }).encode()
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := base64.StdEncoding.DecodeString(string(text))
	for name, spoil := range map[string]func(b []byte) []byte{
		"cookie": func(b []byte) []byte { b[0]++; return b },
		"length": func(b []byte) []byte { binary.BigEndian.PutUint32(b[4:], uint32(len(b))); return b },
		"cut": func(b []byte) []byte {
			b = b[:len(b)-4]
			binary.BigEndian.PutUint32(b[4:],
				uint32(len(b)-8))
			return b
		},
		"checksum": func(b []byte) []byte { b[len(b)-1]++; return b },
		"deflate":  func(b []byte) []byte { b[8] = 0xff; return b },
		"short":    func(b []byte) []byte { return b[:7] },
	} {
		b := spoil(append([]byte(nil), raw...))
		if err := new(Histogram).decode([]byte(base64.StdEncoding.EncodeToString(b))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, b := range map[string][]byte{
		"beyond the last bucket": appendZigzag(appendZigzag(nil, -buckets), 1),
		"far beyond":             appendZigzag(nil, math.MinInt64),
		"more than an int64":     appendZigzag(appendZigzag(nil, math.MaxInt64), 1),
		"half a number":          {0x80},
	} {
		if err := readCounts(b, func(int, int64) {}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	falling := func(yield func(int, int64) bool) { _ = yield(5, 1) && yield(4, 1) }
	if _, err := new(hdrWriter).encode(nil, falling); err == nil {
		t.Error("falling buckets: no error")
	}
}

func FuzzCounts(f *testing.F) {
	f.Add(appendZigzag(appendZigzag(nil, -1000), 1<<60))
	f.Add([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		last, total := -1, int64(0)
		err := readCounts(b, func(bucket int, n int64) {
			if bucket <= last || bucket >= buckets || n <= 0 {
				t.Fatalf("%d in bucket %d after %d", n, bucket, last)
			}
			last = bucket
			total += n
		})
		if total < 0 {
			t.Fatal("more than an int64 holds")
		}
		if v, n := zigzag(b); n > 0 && err == nil {
			if again, m := zigzag(appendZigzag(nil, v)); again != v || m > n {
				t.Fatalf("%d is written as %d in %d bytes, was %d", v, again, m, n)
			}
		}
	})
}

// FuzzDecode checks that package hdr can read every histogram that decode can, with the same
// result.
func FuzzDecode(f *testing.F) {
	for _, h := range many() {
		text, err := h.encode()
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 2000 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var ours Histogram
		if ours.decode(text) != nil {
			return
		}
		theirs, err := hdr.Decode(text)
		if err != nil {
			t.Fatalf("package hdr: %v", err)
		}
		if theirs.TotalCount() != ours.Count() {
			t.Fatalf("%d values, package hdr reads %d", ours.Count(), theirs.TotalCount())
		}
		x := theirs.Export()
		if x.LowestTrackableValue == lowest && x.HighestTrackableValue == highest && x.SignificantFigures == digits &&
			!theirs.Equals(library(&ours)) {
			t.Fatal("other buckets than package hdr reads")
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestBuckets: the buckets cover all values without a gap, and are at most 1/64 of their values
// wide.
func TestBuckets(t *testing.T) {
	next := int64(0)
	for b := range Buckets {
		low, high := bucketRange(b)
		if low != next || bucketOf(uint64(low)) != b || bucketOf(uint64(high)) != b {
			t.Fatalf("bucket %d is %d to %d; its ends are in %d and %d", b, low, high, bucketOf(uint64(low)),
				bucketOf(uint64(high)))
		}
		if low > 0 && (high-low)*64 > low {
			t.Fatalf("bucket %d to %d is wider than 1/64", low, high)
		}
		next = high + 1
	}
	if next != 1<<maxBits || bucketOf(1<<63) != Buckets-1 {
		t.Errorf("the buckets end at %d, and 2^63 is in %d", next, bucketOf(1<<63))
	}
}

func TestHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var values []int64
	for range 10000 {
		v := int64(rng.ExpFloat64() * 50e3)
		values = append(values, v)
		h.Record(v)
	}
	slices.Sort(values)
	for _, p := range []float64{1, 50, 90, 99, 99.9, 100} {
		want := float64(values[int(p/100*10000+0.5)-1])
		if got := float64(h.ValueAt(p)); got < want*0.992-1 || got > want*1.008+1 {
			t.Errorf("P%g is %g, want %g", p, got, want)
		}
	}
	var none *Histogram
	if none.Count() != 0 || none.ValueAt(99) != 0 || none.Mean() != 0 || none.Sub(&h) != nil {
		t.Error("nil is not an empty histogram")
	}
	text, err := json.Marshal(&h)
	must.Do(t, err)
	var read Histogram
	must.Do(t, json.Unmarshal(text, &read))
	if !slices.Equal(read.counts, h.counts) || read.n != h.n {
		t.Error("JSON lost values")
	}
	more := Merge(&h, &h)
	if d := more.Sub(&h); !slices.Equal(d.counts, h.counts) || d.Count() != 10000 {
		t.Errorf("h + h - h has %d values", d.Count())
	}
}

// TestSub: a window has the requests, the time and the cost since the earlier snapshot, also of a
// service that it did not have.
func TestSub(t *testing.T) {
	snapshot := func(n int, names ...string) Snapshot {
		s := Snapshot{Duration: time.Duration(n) * time.Second, Lost: uint64(n), Cost: Cost{CPU: time.Duration(n), Runs: uint64(n)}}
		for _, name := range names {
			x := Service{Target: Target{Name: name}, Requests: uint64(n), Stamped: uint64(n), Unfinished: uint64(n),
				CPU: time.Duration(n * 10)}
			x.Waits[App] = &Histogram{}
			for i := range n {
				x.Waits[App].Record(int64(i))
			}
			s.Services = append(s.Services, x)
		}
		return s
	}
	d := snapshot(5, "a", "b").Sub(snapshot(2, "b"))
	if d.Duration != 3*time.Second || d.Lost != 3 || d.Cost.CPU != 3 || d.Cost.Runs != 3 {
		t.Errorf("%+v", d)
	}
	if a, b := d.Services[0], d.Services[1]; a.Requests != 5 || a.Stamped != 5 || b.Stamped != 3 ||
		a.Waits[App].Count() != 5 || b.Requests != 3 || b.Waits[App].Count() != 3 || b.Waits[App].ValueAt(0) != 2 ||
		b.CPU != 30 || b.Unfinished != 3 {
		t.Errorf("a %+v, b %+v", a, b)
	}
	if want := 3.0 / 80; d.Cost.Share != want {
		t.Errorf("cost %g, want %g", d.Cost.Share, want)
	}
}

func TestStageNames(t *testing.T) {
	for s := range Stages {
		text, err := s.MarshalText()
		must.Do(t, err)
		var got Stage
		if err := got.UnmarshalText(text); err != nil || got != s {
			t.Errorf("%s is read as %v: %v", text, got, err)
		}
	}
	if _, err := Stages.MarshalText(); err == nil {
		t.Error("a stage that is none has a name")
	}
}

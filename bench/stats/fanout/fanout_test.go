// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/stats"
)

// alike returns windows of 1000 answers. In each window, slow answers take 10 ms and all others 1
// ms.
func alike(windows, slow int) *stats.Sample {
	r := stats.NewRecorder(stats.DefaultWindow, windows)
	for w := range windows {
		r.Advance(w)
		for i := range 1000 {
			if i < slow {
				r.Record(10e6)
			} else {
				r.Record(1e6)
			}
		}
	}
	return stats.NewSample(r.Series())
}

func TestServersOf(t *testing.T) {
	for _, tt := range []struct {
		within, p float64
		want      int64
	}{
		{0.99, 0.5, 68},        // ln 0.5 / ln 0.99 = 68.97
		{0.999, 0.99, 10},      // 10.05
		{0.99999, 0.9, 10_535}, // 10535.999
		{0.9, 0.9, 1}, {0.9, 0.91, 0}, {0.9, 0.81, 2}, {0, 0.5, 0}, {1, 0.5, Most}, {math.Nextafter(1, 0), 0.5, Most},
	} {
		if got := servers(tt.within, tt.p); got != tt.want {
			t.Errorf("servers(%v, %v) = %d, want %d", tt.within, tt.p, got, tt.want)
		}
	}
}

func TestServers(t *testing.T) {
	// 1000 of 100000 answers are slow; the binomial interval is 0.939 to 1.064 %.
	a, err := Servers(alike(100, 10), 2e6, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	if a.Servers != 68 || a.Low < 63 || a.Low > 65 || a.High < 72 || a.High > 74 || a.Missing != "" {
		t.Errorf("got %+v", a)
	}
	if want := "68 ("; !strings.HasPrefix(a.String(), want) {
		t.Errorf("got %q, want %q...", a.String(), want)
	}
	if a, err = Servers(alike(100, 10), 5e5, 0.5); err != nil || a.Servers != 0 || a.High != 0 || a.Missing != "" {
		t.Errorf("nobody is that fast: %+v, %v", a, err)
	}
	if _, err := json.Marshal(a); err != nil {
		t.Error(err)
	}
}

func TestServersRefuses(t *testing.T) {
	a, err := Servers(alike(100, 10), 20e6, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	// Up to 3.7 of 100000 answers may be slower: ln 0.5 / ln(1 - 3.7e-5) = 18700. A hundred windows
	// make it slightly less.
	if a.Servers != 0 || a.Low < 17_000 || a.Low > 19_000 || a.High != Most {
		t.Errorf("got %+v", a)
	}
	if s := a.String(); !strings.HasPrefix(s, "at least 1") || !strings.Contains(s,
		"0 of 100000 samples are beyond, want at least 10") {
		t.Errorf("got %q", s)
	}
	for _, p := range []float64{0, 1, -1, math.NaN()} {
		if _, err := Servers(alike(10, 10), 2e6, p); err == nil {
			t.Errorf("probability %v: no error", p)
		}
	}
	var blind *stats.BlindError
	if _, err := Servers(alike(5, 10), 2e6, 0.5); !errors.As(err, &blind) {
		t.Errorf("five windows: %v", err)
	}
}

func TestTime(t *testing.T) {
	s := alike(100, 10)
	// 60 servers need P98.85 of one server, 100 servers P99.31.
	if e, err := Time(s, 60, 0.5); err != nil || e.Value < 999e3 || e.Value > 1001e3 {
		t.Errorf("60 servers: %+v, %v", e, err)
	}
	if e, err := Time(s, 100, 0.5); err != nil || e.Value < 9990e3 || e.Value > 10.01e6 {
		t.Errorf("100 servers: %+v, %v", e, err)
	}
	var few *stats.TooFewError
	if _, err := Time(s, 1e6, 0.5); !errors.As(err, &few) ||
		!strings.HasPrefix(err.Error(), "fan-out to 1000000: P99.9999") {
		t.Errorf("a million servers: %v", err)
	}
	if _, err := Time(s, 0, 0.5); err == nil {
		t.Error("no server: no error")
	}
}

func TestCompare(t *testing.T) {
	rows, err := Compare(alike(100, 10), alike(100, 1), []int64{5e5, 2e6, 20e6}, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	// A share of 0.99 allows 68 servers, 0.999 allows 692.
	for i, want := range []string{stats.Same, "×10.2", stats.Same} {
		if rows[i].Text != want {
			t.Errorf("row %d: %q, want %q (%v and %v)", i, rows[i].Text, want, rows[i].Without, rows[i].With)
		}
	}
	rows, err = Compare(alike(100, 10), alike(100, 10), []int64{2e6}, 0.5)
	if err != nil || rows[0].Text != stats.Same {
		t.Errorf("a variant with itself: %+v, %v", rows, err)
	}
	// If 990 of 1000 answers are too late, not even one server can be asked.
	for want, c := range map[string][2]int{"where the base has 68": {10, 990}, "where the base has none": {990, 10},
		stats.Same: {990, 990}} {
		rows, err := Compare(alike(100, c[0]), alike(100, c[1]), []int64{2e6}, 0.5)
		if err != nil || rows[0].Text != want {
			t.Errorf("%d and %d late: %+v, %v; want %q", c[0], c[1], rows, err, want)
		}
	}
	// In one of the samples no answer is too late. So only a lower bound of its number of servers is
	// known.
	for want, c := range map[string][2]int{"at least ×": {10, 0}, "at most ×": {0, 10},
		"where the base has at least ": {0, 990}, "where the base has none": {990, 0}, stats.Same: {0, 0}} {
		rows, err := Compare(alike(100, c[0]), alike(100, c[1]), []int64{2e6}, 0.5)
		if err != nil || !strings.HasPrefix(rows[0].Text, want) {
			t.Errorf("%d and %d late: %+v, %v; want %q", c[0], c[1], rows, err, want)
		}
	}
	if _, err := Compare(alike(100, 10), alike(5, 10), []int64{2e6}, 0.5); err == nil ||
		!strings.HasPrefix(err.Error(), "with the lane: fan-out: ") {
		t.Errorf("five windows: %v", err)
	}
}

// TestCoverage checks answers that are slow in runs. The interval must be wide enough to contain
// the true number of servers.
func TestCoverage(t *testing.T) {
	// A slow spell begins at one answer in 20,000 and ends at one answer in 50. During it, half of the
	// answers take 20 ms, all others 1 ms.
	const begin, end, p, trials = 1.0 / 20_000, 1.0 / 50, 0.9, 100
	slow := begin / (begin + end) / 2
	truth := servers(1-slow, p)
	rng := rand.New(rand.NewPCG(1, 1))
	in, naive := 0, 0
	for range trials {
		r := stats.NewRecorder(stats.DefaultWindow, 400)
		bad := rng.Float64() < begin/(begin+end)
		beyond := 0.0
		const n = 400_000
		for i := range n {
			r.Advance(i / 1000)
			if bad && rng.IntN(2) == 0 {
				r.Record(20e6)
				beyond++
			} else {
				r.Record(1e6)
			}
			if bad {
				bad = rng.Float64() >= end
			} else {
				bad = rng.Float64() < begin
			}
		}
		a, err := Servers(stats.NewSample(r.Series()), 2e6, p)
		if err != nil {
			t.Fatal(err)
		}
		if a.Low <= truth && truth <= a.High {
			in++
		}
		if d := 1.96 * math.Sqrt(beyond); math.Abs(beyond-slow*n) <= d {
			naive++
		}
	}
	t.Logf("%d of %d cover %d; %d if samples were independent", in, trials, truth, naive)
	if in < trials*9/10 {
		t.Errorf("%d of %d intervals cover %d servers", in, trials, truth)
	}
	if naive > trials/2 {
		t.Errorf("%d of %d intervals for independent samples cover: the test is too easy", naive, trials)
	}
}

// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// many runs a trial in many worlds and returns the summaries.
func many(t *testing.T, n int, run func(seed uint64) Config) []*result.Summary {
	t.Helper()
	out := make([]*result.Summary, n)
	var wg sync.WaitGroup
	seeds := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range seeds {
				r, err := Run(t.Context(), run(uint64(i)))
				if err != nil {
					t.Error(err)
					continue
				}
				out[i] = result.Summarize(r)
			}
		})
	}
	for i := range n {
		seeds <- i
	}
	close(seeds)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

// different reports whether a summary shows any difference.
func different(s *result.Summary) bool {
	v := s.Points[0].Variants[1]
	all := slices.Clone(v.Percentiles)
	for _, w := range v.Live.Waits {
		all = append(all, w.Percentiles...)
	}
	for _, m := range v.Live.Measures {
		if m.Ratio != nil && m.Ratio.Difference.Text != stats.Same {
			return true
		}
	}
	return slices.ContainsFunc(all, func(c result.Percentile) bool {
		return c.Difference != nil && c.Difference.Text != stats.Same
	})
}

// simulations is the number of trials of each simulation. NICLANE_SIMULATIONS sets another one: 2000 take
// some minutes.
func simulations() int {
	if n, err := strconv.Atoi(os.Getenv("NICLANE_SIMULATIONS")); err == nil {
		return n
	}
	return 80
}

// TestNothing checks that a lane that does nothing shows no difference in at least 95 of 100 trials,
// although the time of requests depends on that before and the load drifts.
func TestNothing(t *testing.T) {
	n := simulations()
	for name, tt := range map[string]struct {
		phi  float64
		rate func(float64) float64
	}{
		"steady":     {0, func(float64) float64 { return 60 }},
		"dependent":  {0.9, func(float64) float64 { return 60 }},
		"drift":      {0.5, func(t float64) float64 { return 40 * (1 + t/240) }},
		"slow waves": {0.98, func(t float64) float64 { return 60 * (1 + 0.5*math.Sin(t/40)) }},
	} {
		wrong := 0
		for _, s := range many(t, n, func(seed uint64) Config {
			w := newWorld(seed)
			w.phi, w.rate = tt.phi, tt.rate
			w.events = func(int) (uint64, uint64) { return uint64(w.random.IntN(8) / 7), 0 }
			return w.config(2, 40)
		}) {
			if different(s) {
				wrong++
			}
		}
		share := float64(wrong) / float64(n)
		t.Logf("%s: a difference in %.1f %% of %d trials", name, 100*share, n)
		// 5 %, and what chance adds to it in this many trials (two standard errors).
		if share > 0.05+2*math.Sqrt(0.05*0.95/float64(n)) {
			t.Errorf("%s: a lane that does nothing shows a difference in %.1f %% of trials, want at most 5 %%", name,
				100*share)
		}
	}
}

// TestEffect checks that an effect of known size is found, and that the intervals contain it.
func TestEffect(t *testing.T) {
	n := simulations() / 2
	const truth = 0.7
	found, covered := 0, 0
	for _, s := range many(t, n, func(seed uint64) Config {
		w := newWorld(seed)
		w.phi = 0.8
		w.rate = func(t float64) float64 { return 60 * (1 + 0.3*math.Sin(t/60)) }
		w.effect = func(variant int, _ float64) float64 { return []float64{1, truth}[variant] }
		return w.config(2, 40)
	}) {
		c := s.Points[0].Variants[1].Percentiles[0]
		if c.Ratio.Low <= truth && truth <= c.Ratio.High {
			covered++
		}
		if s.Trial.Verdicts[0].Outcome == result.Keep {
			found++
		}
	}
	if share := float64(found) / float64(n); share < 0.95 {
		t.Errorf("kept in %.1f %% of trials, want 95 %%", 100*share)
	}
	if share := float64(covered) / float64(n); share < 0.95-3*math.Sqrt(0.05*0.95/float64(n)) {
		t.Errorf("the interval of P50 contains the true ratio in %.1f %% of trials, want 95 %%", 100*share)
	}
}

// TestHarm checks that a lane that only makes requests slower, or loses packets, is not kept, and that
// one that does both good and harm is weighed.
func TestHarm(t *testing.T) {
	for name, tt := range map[string]struct {
		effect float64
		lost   uint64
		want   result.Outcome
	}{
		"slower":             {1.5, 0, result.DoNotKeep},
		"lossy":              {1, 3, result.DoNotKeep},
		"faster but lossy":   {0.5, 3, result.Weigh},
		"faster":             {0.5, 0, result.Keep},
		"nothing, and clear": {1, 0, result.DoNotKeep},
	} {
		w := newWorld(3)
		w.rate = func(float64) float64 { return 400 }
		w.effect = func(variant int, _ float64) float64 { return []float64{1, tt.effect}[variant] }
		w.events = func(variant int) (uint64, uint64) { return 0, uint64(variant) * tt.lost }
		r, err := Run(t.Context(), w.config(2, 120))
		if err != nil {
			t.Fatal(err)
		}
		v := result.Summarize(r).Trial.Verdicts[0]
		if v.Outcome != tt.want || len(v.Reasons) == 0 {
			t.Errorf("%s: %q, want %q: %v", name, v.Outcome, tt.want, v.Reasons)
		}
	}
}

// TestShort checks that a trial that is too short says how many windows it would take.
func TestShort(t *testing.T) {
	w := newWorld(5)
	r, err := Run(t.Context(), w.config(2, 8))
	if err != nil {
		t.Fatal(err)
	}
	v := result.Summarize(r).Trial.Verdicts[0]
	if v.Outcome != result.CannotTell || v.Windows < 8 {
		t.Errorf("%+v: want %q and at least 8 windows", v, result.CannotTell)
	}
}

// TestJumps checks that pairs of windows whose loads differ are left out, and that a change of the load
// that the lane causes is no reason.
func TestJumps(t *testing.T) {
	w := newWorld(9)
	w.rate = func(t float64) float64 {
		if int(t/45)%2 == 1 {
			return 300
		}
		return 100
	}
	r, err := Run(t.Context(), w.config(2, 60))
	if err != nil {
		t.Fatal(err)
	}
	s := result.Summarize(r).Points[0]
	if l := s.Variants[1].Live; l.LeftOut < 5 || l.Pairs < 10 || l.LeftOut+l.Pairs != s.Rounds {
		t.Errorf("%d pairs left out, %d kept of %d", l.LeftOut, l.Pairs, s.Rounds)
	}

	w = newWorld(9)
	w.rate = func(float64) float64 { return 100 * []float64{1, 1.6}[w.variant] }
	if r, err = Run(t.Context(), w.config(2, 60)); err != nil {
		t.Fatal(err)
	}
	s = result.Summarize(r).Points[0]
	if l := s.Variants[1].Live; l.LeftOut > 0 || l.Load.Estimate < 1.5 || l.Load.Estimate > 1.7 {
		t.Errorf("a lane that brings more requests: %+v", l)
	}
	if !slices.ContainsFunc(s.Doubts, func(d result.Doubt) bool {
		return strings.HasPrefix(d.Text, "the load differs from that of without: ×1.6")
	}) {
		t.Errorf("doubts %+v do not name the load", s.Doubts)
	}
}

// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/stats"
)

// A server answers up to capacity requests per second. Its response times are exponential around
// mean(rate) ns. Each window has a random factor.
type server struct {
	mean     func(rate float64) float64
	noise    float64 // standard deviation of the logarithm of the window's factor
	capacity float64
	rng      *rand.Rand
	windows  int
}

func (s *server) measure(_ context.Context, rate float64) (Outcome, error) {
	s.windows++
	f := math.Exp(s.noise * s.rng.NormFloat64())
	r := stats.NewRecorder(stats.DefaultWindow, 20)
	for i := range 2000 {
		r.Advance(i / 100)
		r.Record(int64(s.mean(rate) * f * s.rng.ExpFloat64()))
	}
	o := Outcome{Achieved: rate, Latency: r.Series()}
	if s.capacity > 0 {
		o.Achieved = min(rate, s.capacity*(1+0.01*s.rng.NormFloat64()))
	}
	return o, nil
}

// queue returns the mean time in an M/M/1 system of this capacity, which is exponential.
func queue(capacity float64) func(rate float64) float64 {
	return func(rate float64) float64 { return 1e9 / max(capacity-rate, 1) }
}

const limit = 1e6 // ns

// atLimit is the rate at which P99 of queue(20000) is equal to the limit.
var atLimit = 20_000 - 1e9*math.Log(100)/limit

var config = Config{Goal: Goal{Percentile: 99, Limit: limit}, Low: 500, High: 100_000}

func TestQueue(t *testing.T) {
	const trials = 40
	near, above, confident := 0, 0, 0
	for seed := range uint64(trials) {
		s := &server{mean: queue(20_000), noise: 0.05, rng: rand.New(rand.NewPCG(seed, 1))}
		r, err := Run(t.Context(), config, s.measure)
		if err != nil || r.Reason != "" {
			t.Fatalf("seed %d: %v, %q", seed, err, r.Reason)
		}
		if r.Windows != s.windows || r.Windows > 200 {
			t.Errorf("seed %d: %d windows, measured %d", seed, r.Windows, s.windows)
		}
		if r.Rate > 0.85*atLimit {
			near++
		}
		if r.Rate > atLimit {
			above++
		}
		if e := r.Confirmed.Estimate; r.Confirmed.Rate == r.Rate && e != nil && e.High <= limit && r.Beyond > r.Rate {
			confident++
		}
		if len(r.Levels) != 3 || r.Levels[1].Test.Rate != r.Rate/2 || r.Levels[2].Test.Estimate == nil {
			t.Errorf("seed %d: levels %+v", seed, r.Levels)
		}
	}
	t.Logf("near %d, above %d of %d", near, above, trials)
	if near < trials*9/10 {
		t.Errorf("%d of %d searches came within 15 %% of the limit", near, trials)
	}
	if above > trials/20 {
		t.Errorf("%d of %d searches claim a rate that breaks the limit", above, trials)
	}
	if confident < trials {
		t.Errorf("%d of %d are confident", confident, trials)
	}
}

// TestLuckyWindows checks that one lucky window is not enough. At each rate above 4000, one window
// in five meets the goal.
func TestLuckyWindows(t *testing.T) {
	fooled := 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := &server{rng: rng, mean: func(float64) float64 { return 1e4 }}
		measure := func(ctx context.Context, rate float64) (Outcome, error) {
			o, err := s.measure(ctx, rate)
			if rate > 4000 && rng.IntN(5) != 0 {
				o.Achieved = rate / 2
			}
			return o, err
		}
		r, err := Run(t.Context(), config, measure)
		if err != nil {
			t.Fatal(err)
		}
		if r.Rate > 4100 {
			fooled++
		}
	}
	if fooled > 1 {
		t.Errorf("%d of 30 searches were fooled by lucky windows", fooled)
	}
}

// TestShortOfRateAndOfRequests checks that a window that does not achieve its rate misses the goal,
// even if it has no percentile.
func TestShortOfRateAndOfRequests(t *testing.T) {
	s := &server{mean: func(float64) float64 { return 1 }, rng: rand.New(rand.NewPCG(3, 3))}
	c := config
	c.Goal.Percentile = 99.9 // needs five times as many requests as a window has
	r, err := Run(t.Context(), c, func(ctx context.Context, rate float64) (Outcome, error) {
		o, err := s.measure(ctx, rate)
		o.Achieved = rate / 2
		return o, err
	})
	if err != nil || r.Rate != 0 || r.Windows != lead || r.Tests[0].Verdict != Beyond || r.Tests[0].Short != lead {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestFivePercent checks a goal without a latency limit: only the papers' rule that at least 95 %
// of the rate must be achieved.
func TestFivePercent(t *testing.T) {
	s := &server{mean: func(float64) float64 { return 1 }, capacity: 10_000, rng: rand.New(rand.NewPCG(3, 3))}
	c := Config{Low: 500, High: 100_000}
	r, err := Run(t.Context(), c, s.measure)
	if err != nil || r.Rate < 0.95*10_000/0.95 || r.Rate > 1.01*10_000/0.95 {
		t.Errorf("rate %.0f, %v; want next to 10526", r.Rate, err)
	}
	for _, test := range r.Tests {
		if test.Slow != 0 || test.Estimate != nil || test.Short != test.Windows-test.Within {
			t.Errorf("without a limit: %+v", test)
		}
	}
}

// TestNotMonotone checks a server whose latency is bad at some rates near 7000 to 9000 and good at
// higher rates.
func TestNotMonotone(t *testing.T) {
	s := &server{rng: rand.New(rand.NewPCG(4, 4)), noise: 0.02, mean: func(rate float64) float64 {
		if rate > 7000 && rate < 7900 {
			return 1e9
		}
		return queue(20_000)(rate)
	}}
	r, err := Run(t.Context(), config, s.measure)
	if err != nil {
		t.Fatal(err)
	}
	if r.Rate < 6000 || r.Rate > 7000 {
		t.Errorf("rate %.0f, want just below 7000 and not the one beyond the gap", r.Rate)
	}
	if !strings.Contains(strings.Join(r.Warnings, "\n"), "latency does not grow with the rate; searched again below") {
		t.Errorf("warnings %q", r.Warnings)
	}
}

func TestEnds(t *testing.T) {
	run := func(c Config, mean func(float64) float64) *Result {
		t.Helper()
		s := &server{mean: mean, rng: rand.New(rand.NewPCG(5, 5))}
		r, err := Run(t.Context(), c, s.measure)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		return r
	}
	slow := func(float64) float64 { return 1e9 }
	if r := run(config, slow); r.Rate != 0 || r.Beyond != 500 ||
		r.Reason != "the lowest rate, 500/s, is not within the goal" || r.Windows != lead {
		t.Errorf("always slow: %+v", r)
	}
	fast := func(float64) float64 { return 1e3 }
	if r := run(config, fast); r.Rate != 100_000 || r.Beyond != 0 || len(r.Warnings) != 1 ||
		!strings.Contains(r.Warnings[0], "the limit is beyond it") {
		t.Errorf("always fast: %+v", r)
	}
	c := config
	c.Windows = 20
	if r := run(c, queue(20_000)); r.Rate != 0 || r.Reason != "all 20 windows are used up" || r.Windows != 20 ||
		r.Crossing < 4000 {
		t.Errorf("few windows: %+v", r)
	}
}

func TestFaults(t *testing.T) {
	s := &server{mean: queue(20_000), rng: rand.New(rand.NewPCG(6, 6))}
	died := errors.New("server died")
	r, err := Run(t.Context(), config, func(ctx context.Context, rate float64) (Outcome, error) {
		if s.windows == 7 {
			return Outcome{}, died
		}
		return s.measure(ctx, rate)
	})
	if !errors.Is(err, died) || r == nil || r.Windows != 7 || err.Error() != "search: at 2000/s: server died" ||
		r.Tests[1].Verdict != Within {
		t.Errorf("%v, %+v", err, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err = Run(ctx, config, func(ctx context.Context, rate float64) (Outcome, error) {
		cancel()
		return s.measure(ctx, rate)
	})
	if !errors.Is(err, context.Canceled) || r.Windows != 1 {
		t.Errorf("%v, %+v", err, r)
	}
	c := config
	c.Goal.Percentile = 99.9
	var few *stats.TooFewError
	if _, err := Run(t.Context(), c, s.measure); !errors.As(err, &few) ||
		!strings.Contains(err.Error(), "at 500/s: the window is too short: P99.9 needs 10000 samples, have 2000") {
		t.Errorf("short windows: %v", err)
	}
	if _, err := Run(t.Context(), config, func(context.Context, float64) (Outcome, error) {
		return Outcome{},
			nil
	}); err == nil {
		t.Error("no latency: no error")
	}
	_, err = Run(t.Context(), Config{Goal: Goal{Percentile: 100, Limit: 1, Achieved: 2}, Low: 5, High: 4, Resolution: 1,
		Windows: 1}, nil)
	errtest.Says(t, "all", err, "goal P100", "achieved 2", "rates 5 to 4", "resolution 1", "windows 1")
}

func TestCrossing(t *testing.T) {
	tests := func(list ...[3]float64) (ts []*Test) {
		for _, l := range list {
			ts = append(ts, &Test{Rate: l[0], Within: int(l[1]), Windows: int(l[2])})
		}
		return ts
	}
	for _, tt := range []struct {
		name  string
		tests []*Test
		want  float64
	}{
		{"falling", tests([3]float64{10, 3, 3}, [3]float64{20, 2, 3}, [3]float64{40, 0, 3}), 20},
		{"any order, same rate twice", tests([3]float64{40, 0, 3}, [3]float64{20, 3, 3}, [3]float64{20, 1, 5},
			[3]float64{10, 3, 3}), 20},
		// The rates 20 and 40 are one block, in which 3 of 6 windows meet the goal.
		{"rising", tests([3]float64{10, 3, 3}, [3]float64{20, 0, 3}, [3]float64{40, 3, 3}), 40},
		{"rising, mostly bad", tests([3]float64{10, 0, 4}, [3]float64{20, 3, 3}), 0},
		{"none", nil, 0},
	} {
		if got := crossing(tt.tests); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

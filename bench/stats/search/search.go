// SPDX-License-Identifier: Apache-2.0

// Package search finds the highest rate that a server sustains within a goal. The goal is a
// percentile of latency below a limit, an achieved rate that is close to the requested one, or
// both.
//
// It does not trust one lucky window. It measures each rate until three more windows meet the goal
// than miss it, or the reverse. Then it tests the rate that it found in fresh windows, because the
// windows that selected the rate are biased. It also measures 10, 50 and 90 % of this rate, to
// check that lower rates are better. It is pure: only the given Measure function takes time, and it
// is called a limited number of times.
package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/niclane/niclane/bench/stats"
)

// Outcome is what one window measured.
type Outcome struct {
	Achieved float64 // answered requests per second
	// Latency has all requests of the window. It is not used without a Goal.Limit.
	Latency *stats.Series
}

// Measure loads the server with rate requests per second for one window. Even at the lowest rate, a
// window must be long enough for Goal.Percentile.
type Measure func(ctx context.Context, rate float64) (Outcome, error)

// Goal is what the windows at a rate must meet.
type Goal struct {
	Percentile float64 `json:"p"`       // more than 0, less than 100
	Limit      int64   `json:"limitNs"` // limit of the percentile; 0: none
	// Achieved is the least share of the requested rate that must be answered. 0 means 0.95: the
	// papers' rule of 5 %.
	Achieved float64 `json:"achieved"`
}

// Config configures a search.
type Config struct {
	Goal Goal    `json:"goal"`
	Low  float64 `json:"low"`  // the first rate to test, which should meet the goal
	High float64 `json:"high"` // the highest rate to test
	// Resolution is how precisely the rate is found, as a share of it; 0 means 0.02.
	Resolution float64 `json:"resolution"`
	// Windows is the largest number of windows of the whole search; 0 means 200.
	Windows int `json:"windows"`
}

const (
	// lead ends the test of a rate when this many more windows meet the goal than miss it, or the
	// reverse. It is Wald's sequential probability ratio test (1945, Annals of Mathematical Statistics
	// 16). If one window in five meets the goal, the rate is accepted with probability 1/(1+4³) = 1.5
	// %. If four in five meet it, the rate is refused with the same probability.
	lead = 3
	// perRate is the largest number of windows for one test. A rate that is undecided after so many
	// windows is too close to the limit for a verdict.
	perRate = 15
)

// levels are shares of the rate that was found. The search measures latency at each of them, as
// FD.io CSIT does for packets.
var levels = [...]float64{0.1, 0.5, 0.9}

// Verdict says whether a rate meets the goal.
type Verdict string

// The three verdicts.
const (
	Within  Verdict = "within"
	Beyond  Verdict = "beyond"
	Unclear Verdict = "too close to tell"
)

// Test is the test of one rate.
type Test struct {
	Rate    float64 `json:"rate"`
	Purpose string  `json:"purpose"` // "search", "confirm", "level"
	Windows int     `json:"windows"`
	Within  int     `json:"within"` // windows that met the goal
	Slow    int     `json:"slow"`   // windows in which the percentile was above the limit
	Short   int     `json:"short"`  // windows that did not achieve the requested rate
	Verdict Verdict `json:"verdict"`
	// Achieved is the mean of the achieved rates of all windows.
	Achieved float64 `json:"achieved"`
	// Estimate is the percentile of all windows together. If it is nil, Missing says why.
	Estimate *stats.Estimate `json:"estimate,omitempty"`
	Missing  string          `json:"missing,omitempty"`

	series []*stats.Series
}

// Series returns the latencies of the test, one series for each window.
func (t *Test) Series() []*stats.Series { return t.series }

// Level is the latency at a share of the rate that was found.
type Level struct {
	Share float64 `json:"share"`
	Test  *Test   `json:"test"`
}

// Result is the result of a search.
type Result struct {
	// Rate is the highest rate that met the goal and was confirmed; 0: none.
	Rate float64 `json:"rate"`
	// Beyond is the lowest rate above Rate that did not meet the goal; 0 if Config.High met it.
	Beyond float64 `json:"beyond"`
	// Confirmed is the test of Rate with fresh windows.
	Confirmed *Test   `json:"confirmed,omitempty"`
	Levels    []Level `json:"levels,omitempty"`
	// Tests are all tests in the order in which they were made.
	Tests   []*Test `json:"tests"`
	Windows int     `json:"windows"`
	// Crossing is the rate at which half of the windows would meet the goal; 0 if there is none. It is
	// estimated from all tests, by a falling step function.
	Crossing float64 `json:"crossing"`
	// Reason says why there is no Rate, or why Rate is less certain than it should be.
	Reason   string   `json:"reason,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

func (c Config) check() (Config, error) {
	c.Goal.Achieved = cmp.Or(c.Goal.Achieved, 0.95)
	c.Resolution = cmp.Or(c.Resolution, 0.02)
	c.Windows = cmp.Or(c.Windows, 200)
	var errs []error
	if g := c.Goal; g.Limit < 0 || g.Limit > 0 && !(g.Percentile > 0 && g.Percentile < 100) {
		errs = append(errs, fmt.Errorf("goal P%v within %d ns: want a percentile above 0 and below 100, and a limit "+
			"of at least 0", g.Percentile, g.Limit))
	}
	if a := c.Goal.Achieved; !(a > 0 && a <= 1) {
		errs = append(errs, fmt.Errorf("goal achieved %v: want more than 0, at most 1", a))
	}
	if !(c.Low > 0) || !(c.High >= c.Low) || math.IsInf(c.High, 1) {
		errs = append(errs, fmt.Errorf("rates %v to %v: want the first above 0 and not above the second", c.Low,
			c.High))
	}
	if !(c.Resolution > 0 && c.Resolution < 1) {
		errs = append(errs, fmt.Errorf("resolution %v: want more than 0, less than 1", c.Resolution))
	}
	if c.Windows < 2*lead {
		errs = append(errs, fmt.Errorf("windows %d: want at least %d", c.Windows, 2*lead))
	}
	return c, errors.Join(errs...)
}

// errSpent ends a search that has used all its windows.
var errSpent = errors.New("all windows are used up")

// Run searches. If measure fails or ctx ends, it returns the error together with what was measured
// before. If all windows are used up, that is not an error; Result.Reason says so.
func Run(ctx context.Context, c Config, measure Measure) (*Result, error) {
	c, err := c.check()
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	s := &searcher{ctx: ctx, cfg: c, measure: measure, res: &Result{}}
	err = s.run()
	s.res.Crossing = crossing(s.res.Tests)
	if errors.Is(err, errSpent) {
		s.res.Reason = fmt.Sprintf("all %d windows are used up", c.Windows)
		err = nil
	}
	if s.res.Rate > 0 && s.res.Rate > s.res.Crossing*(1+c.Resolution) {
		s.warnf("%s was confirmed, but all windows together put the limit at %s: the limit moves, or latency does not "+
			"grow with the rate", perSecond(s.res.Rate), perSecond(s.res.Crossing))
	}
	if err != nil {
		err = fmt.Errorf("search: %w", err)
	}
	return s.res, err
}

type searcher struct {
	ctx     context.Context
	cfg     Config
	measure Measure
	res     *Result
}

func (s *searcher) warnf(format string, a ...any) {
	s.res.Warnings = append(s.res.Warnings, fmt.Sprintf(format, a...))
}

func perSecond(rate float64) string { return fmt.Sprintf("%.4g/s", rate) }

// run first tests rising rates. Then it tests rates between the last that met the goal and the
// first that did not. If a level shows that lower rates are worse, it searches again below them.
func (s *searcher) run() error {
	floor, ceiling := 0.0, 0.0
	for rate := s.cfg.Low; ; rate = min(2*rate, s.cfg.High) {
		t, err := s.test(rate, "search")
		if err != nil {
			return err
		}
		if t.Verdict != Within {
			ceiling = rate
			break
		}
		floor = rate
		if rate == s.cfg.High {
			break
		}
	}
	for {
		if floor == 0 {
			s.res.Beyond = ceiling
			s.res.Reason = fmt.Sprintf("the lowest rate, %s, is not within the goal", perSecond(ceiling))
			return nil
		}
		var err error
		if floor, ceiling, err = s.narrow(floor, ceiling); err != nil {
			return err
		}
		confirmed, err := s.confirm(&floor, &ceiling)
		if err != nil {
			return err
		}
		if confirmed == nil {
			continue // nothing to confirm: floor is 0
		}
		s.res.Rate, s.res.Beyond, s.res.Confirmed, s.res.Levels = floor, ceiling, confirmed, nil
		worse, err := s.levels(floor)
		if err != nil {
			return err
		}
		if worse == 0 {
			if ceiling == 0 {
				s.warnf("the highest rate tried, %s, is within the goal: the limit is beyond it", perSecond(floor))
			}
			return nil
		}
		s.warnf("%s is within the goal, but %s is not: latency does not grow with the rate; searched again below",
			perSecond(floor), perSecond(worse))
		s.res.Rate, s.res.Beyond, s.res.Confirmed, s.res.Levels = 0, worse, nil, nil
		ceiling, floor = worse, s.below(worse)
	}
}

// below returns the highest tested rate that is below rate and met the goal; 0: none.
func (s *searcher) below(rate float64) (best float64) {
	for _, t := range s.res.Tests {
		if t.Rate < rate && t.Verdict == Within {
			best = max(best, t.Rate)
		}
	}
	return best
}

// narrow tests the geometric mean of floor and ceiling and replaces one of the two, until they
// differ by no more than the resolution.
func (s *searcher) narrow(floor, ceiling float64) (float64, float64, error) {
	for ceiling > floor*(1+s.cfg.Resolution) {
		mid := math.Sqrt(floor * ceiling)
		t, err := s.test(mid, "search")
		if err != nil {
			return floor, ceiling, err
		}
		if t.Verdict == Within {
			floor = mid
		} else {
			ceiling = mid
		}
	}
	return floor, ceiling, nil
}

// confirm tests floor with fresh windows. If floor fails, it tests lower and lower rates until one
// passes. If none passes, floor becomes 0.
func (s *searcher) confirm(floor, ceiling *float64) (*Test, error) {
	for step := 1 + s.cfg.Resolution; ; step *= step {
		t, err := s.test(*floor, "confirm")
		if err != nil {
			return nil, err
		}
		if t.Verdict == Within {
			return t, nil
		}
		*ceiling = *floor
		if *floor == s.cfg.Low {
			*floor = 0
			return nil, nil
		}
		*floor = max(*floor/step, s.cfg.Low)
	}
}

// levels tests the shares of rate. worse is the lowest of these rates that does not meet the goal;
// 0: none.
func (s *searcher) levels(rate float64) (worse float64, err error) {
	for _, share := range levels {
		t, err := s.test(share*rate, "level")
		if err != nil {
			return 0, err
		}
		s.res.Levels = append(s.res.Levels, Level{share, t})
		if t.Verdict == Beyond && worse == 0 {
			worse = t.Rate
		}
	}
	return worse, nil
}

// test measures windows at a rate until it has a verdict, or perRate windows.
func (s *searcher) test(rate float64, purpose string) (*Test, error) {
	t := &Test{Rate: rate, Purpose: purpose, Verdict: Unclear}
	s.res.Tests = append(s.res.Tests, t)
	defer t.estimate(s.cfg.Goal)
	for t.Windows < perRate {
		if s.res.Windows == s.cfg.Windows {
			return t, errSpent
		}
		if err := s.ctx.Err(); err != nil {
			return t, context.Cause(s.ctx)
		}
		o, err := s.measure(s.ctx, rate)
		if err != nil {
			return t, fmt.Errorf("at %s: %w", perSecond(rate), err)
		}
		s.res.Windows++
		if err := t.add(o, s.cfg.Goal); err != nil {
			return t, fmt.Errorf("at %s: %w", perSecond(rate), err)
		}
		ahead := 2*t.Within - t.Windows
		switch {
		case ahead <= -lead:
			t.Verdict = Beyond
			return t, nil
		case ahead >= lead && (purpose == "search" || t.holds(s.cfg.Goal)):
			t.Verdict = Within
			return t, nil
		case ahead >= lead && purpose == "level":
			return t, nil // without a clear failure, there is no reason to doubt higher rates
		}
	}
	return t, nil
}

// add adds one window to the test and judges it.
func (t *Test) add(o Outcome, g Goal) error {
	slow, short := false, o.Achieved < g.Achieved*t.Rate
	if g.Limit > 0 {
		if o.Latency == nil {
			return errors.New("the window has no latency")
		}
		v, err := stats.Percentile(o.Latency.Histogram(), g.Percentile)
		// A window that does not achieve the rate misses the goal, whatever its latency is. Such a window
		// may have too few requests for the percentile.
		if err != nil && !short {
			return fmt.Errorf("the window is too short: %w", err)
		}
		slow = err == nil && v > g.Limit
		t.series = append(t.series, o.Latency)
	}
	t.Windows++
	t.Achieved += (o.Achieved - t.Achieved) / float64(t.Windows)
	if slow {
		t.Slow++
	}
	if short {
		t.Short++
	}
	if !slow && !short {
		t.Within++
	}
	return nil
}

// holds reports whether the percentile of all windows together is surely within the limit: whether
// the upper end of its 95 % interval is.
func (t *Test) holds(g Goal) bool {
	if g.Limit == 0 {
		return true
	}
	e, err := stats.NewSample(t.series...).Interval(g.Percentile)
	return err == nil && e.High <= g.Limit
}

func (t *Test) estimate(g Goal) {
	if g.Limit == 0 || t.Windows == 0 {
		return
	}
	e, err := stats.NewSample(t.series...).Interval(g.Percentile)
	if err != nil {
		t.Missing = err.Error()
		return
	}
	t.Estimate = &e
}

// crossing returns the highest rate at which at least half of the windows meet the goal. It fits a
// falling step function to the share of such windows, by isotonic regression with pooled adjacent
// violators (Barlow and others, Statistical Inference under Order Restrictions, 1972).
func crossing(tests []*Test) float64 {
	type block struct{ rate, within, windows float64 }
	sorted := slices.Clone(tests)
	slices.SortStableFunc(sorted, func(a, b *Test) int {
		switch {
		case a.Rate < b.Rate:
			return -1
		case a.Rate > b.Rate:
			return 1
		}
		return 0
	})
	var fit []block
	for _, t := range sorted {
		if t.Windows == 0 {
			continue
		}
		b := block{t.Rate, float64(t.Within), float64(t.Windows)}
		for n := len(fit); n > 0; n-- {
			last := fit[n-1]
			if last.rate < b.rate && last.within*b.windows >= b.within*last.windows {
				break
			}
			b.within, b.windows = b.within+last.within, b.windows+last.windows
			fit = fit[:n-1]
		}
		fit = append(fit, b)
	}
	best := 0.0
	for _, b := range fit {
		if 2*b.within >= b.windows {
			best = b.rate
		}
	}
	return best
}

// SPDX-License-Identifier: Apache-2.0

// Package search finds the highest rate that a server sustains within a goal: a percentile of
// latency below a limit, and an achieved rate that is not far below the requested one.
//
// It does not trust one lucky window. It measures each rate in windows until the windows within
// the goal lead by three, or those beyond it do. It then tests the rate found with fresh
// windows, because the windows that selected it are biased towards it. It also measures 10, 50
// and 90 % of that rate, to check that lower rates are better. It is pure: time passes only in
// the given Measure function, and the number of calls is bounded.
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

// Outcome is that of one window.
type Outcome struct {
	Achieved float64 // answered requests per second
	// Latency of all requests of the window; not used without a Goal.Limit.
	Latency *stats.Series
}

// Measure loads the server at a rate (requests per second) for one window. Windows must be long
// enough for Goal.Percentile, also at the lowest rate.
type Measure func(ctx context.Context, rate float64) (Outcome, error)

// Goal is what a rate must meet.
type Goal struct {
	Percentile float64 `json:"p"`       // 0 to 100, exclusive
	Limit      int64   `json:"limitNs"` // limit of that percentile, 0: none
	// Achieved is the least share of the requested rate that must be answered,
	// 0 for 0.95: the papers' rule of 5 %.
	Achieved float64 `json:"achieved"`
}

// Config is that of a search.
type Config struct {
	Goal Goal    `json:"goal"`
	Low  float64 `json:"low"`  // the first rate, which should be within the goal
	High float64 `json:"high"` // no rate above it is tried
	// Resolution is the share to which the rate is found, 0 for 0.02.
	Resolution float64 `json:"resolution"`
	// Windows is the largest number of windows in all, 0 for 200.
	Windows int `json:"windows"`
}

const (
	// lead ends the test of a rate: Wald's sequential probability ratio test (1945, Annals of
	// Mathematical Statistics 16) of one window in five within the goal against four in five.
	// The probability of accepting a rate with one in five is 1/(1+4³) = 1.5 %; that of
	// refusing one with four in five is the same.
	lead = 3
	// perRate is the largest number of windows for one test. A rate that is still undecided
	// then is too close to the limit for a claim.
	perRate = 15
)

// levels are the shares of the rate found at which latency is measured, as
// FD.io CSIT does for packets.
var levels = [...]float64{0.1, 0.5, 0.9}

// Verdict is that on a rate.
type Verdict string

// The three verdicts.
const (
	Within  Verdict = "within"
	Beyond  Verdict = "beyond"
	Unclear Verdict = "too close to tell"
)

// Test is the measurement of one rate.
type Test struct {
	Rate    float64 `json:"rate"`
	Purpose string  `json:"purpose"` // "search", "confirm", "level"
	Windows int     `json:"windows"`
	Within  int     `json:"within"` // windows within the goal
	Slow    int     `json:"slow"`   // windows with the percentile above the limit
	Short   int     `json:"short"`  // windows that fell short of the requested rate
	Verdict Verdict `json:"verdict"`
	// Achieved is the mean achieved rate over the windows.
	Achieved float64 `json:"achieved"`
	// Estimate of the percentile from all windows; if it is nil, Missing says why.
	Estimate *stats.Estimate `json:"estimate,omitempty"`
	Missing  string          `json:"missing,omitempty"`

	series []*stats.Series
}

// Series returns what was measured, window by window.
func (t *Test) Series() []*stats.Series { return t.series }

// Level is the latency at a share of the rate found.
type Level struct {
	Share float64 `json:"share"`
	Test  *Test   `json:"test"`
}

// Result is that of a search.
type Result struct {
	// Rate is the highest rate that was within the goal and was confirmed, 0: none.
	Rate float64 `json:"rate"`
	// Beyond is the lowest rate above Rate that was not within the goal, 0 if Config.High
	// itself was within it.
	Beyond float64 `json:"beyond"`
	// Confirmed is the test with fresh windows at Rate.
	Confirmed *Test   `json:"confirmed,omitempty"`
	Levels    []Level `json:"levels,omitempty"`
	// Tests are in the order measured.
	Tests   []*Test `json:"tests"`
	Windows int     `json:"windows"`
	// Crossing is the rate at which half of the windows would be within the goal, by a falling
	// step function fitted to all tests; 0 if there is none.
	Crossing float64 `json:"crossing"`
	// Reason is why there is no Rate, or why it is less certain than it should be.
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

// errSpent ends a search whose windows are used up.
var errSpent = errors.New("all windows are used up")

// Run searches. When Measure fails or ctx ends, it returns what was measured until then with
// the error. If it runs out of windows, that is no error but a Reason.
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

// run searches upwards first, then between the last rate within and the first beyond, and again
// further down when a level shows that lower rates are worse.
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
			continue // floor is 0
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

// below returns the highest rate below rate that was within the goal, 0: none.
func (s *searcher) below(rate float64) (best float64) {
	for _, t := range s.res.Tests {
		if t.Rate < rate && t.Verdict == Within {
			best = max(best, t.Rate)
		}
	}
	return best
}

// narrow halves the ratio of ceiling to floor until it is within the resolution.
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

// confirm tests floor with fresh windows. If it fails, it tests lower rates in growing steps
// until one passes; floor is 0 if none does.
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

// levels measures the shares of rate; worse is the lowest that is beyond the goal.
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

// test measures windows at a rate until it can decide.
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
			return t, nil // not bad enough to doubt the rate above it
		}
	}
	return t, nil
}

// add judges one window.
func (t *Test) add(o Outcome, g Goal) error {
	slow, short := false, o.Achieved < g.Achieved*t.Rate
	if g.Limit > 0 {
		if o.Latency == nil {
			return errors.New("the window has no latency")
		}
		v, err := stats.Percentile(o.Latency.Histogram(), g.Percentile)
		// A window that falls short of the rate is beyond the goal, at any latency. It may have
		// too few requests to know its latency.
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

// holds reports whether the percentile of all windows together is below the limit with
// confidence: the upper end of its interval is.
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

// crossing fits a falling step function to the share of windows within the goal and returns the
// highest rate at which it is at least a half. The method is isotonic regression by pooling
// adjacent violators (Barlow and others, Statistical Inference under Order Restrictions, 1972).
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

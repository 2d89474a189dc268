// SPDX-License-Identifier: Apache-2.0

package result

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/stats"
)

// Percentiles of a summary.
var percentiles = [...]float64{50, 90, 99, 99.9, 99.99}

// A Summary is what may be said of a result.
type Summary struct {
	Title    string         `json:"title"`
	Partial  *Partial       `json:"partial,omitempty"`
	Points   []PointSummary `json:"points"`
	Searches []Search       `json:"searches,omitempty"`
	Sweep    []SweepSummary `json:"sweep,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`
}

// A PointSummary compares the variants at a load point.
type PointSummary struct {
	Point
	Name     string           `json:"name"`
	Base     string           `json:"base"`
	Variants []VariantSummary `json:"variants"`
	Goals    []GoalSummary    `json:"goals,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
}

// A VariantSummary is all repeats of a variant at a load point.
type VariantSummary struct {
	Name     string  `json:"name"`
	Windows  int     `json:"windows"`
	Requests int64   `json:"requests"` // that were due
	Mean     float64 `json:"meanNs"`
	// Percentiles of the latency from the intended send time, in the order of
	// P50, P90, P99, P99.9, P99.99.
	Percentiles []Percentile `json:"percentiles"`
	// Offered and Achieved rates per second, over all windows.
	Offered  float64 `json:"offeredPerSecond"`
	Achieved float64 `json:"achievedPerSecond"`
	// Errors, TimedOut and Unanswered requests; misses are in Misses.
	Errors     int64 `json:"errors"`
	TimedOut   int64 `json:"timedOut"`
	Unanswered int64 `json:"unanswered"`
	Misses     int64 `json:"misses"`
	// NoiseToSUT and NoiseFromSUT arrived, bit/s of payload, means of windows.
	NoiseToSUT   float64 `json:"noiseToSUTBitsPerSecond,omitempty"`
	NoiseFromSUT float64 `json:"noiseFromSUTBitsPerSecond,omitempty"`
	// ServerCPU is the processor time of the server for each request sent, ns,
	// warm-up included; 0: not known.
	ServerCPU float64 `json:"serverCPUNs,omitempty"`
}

// A Percentile is an interval, or why there is none, and the ratio to the base
// variant, or why there is none.
type Percentile struct {
	P        float64         `json:"p"`
	Estimate *stats.Estimate `json:"estimate,omitempty"`
	Missing  string          `json:"missing,omitempty"`

	Ratio        *stats.Ratio      `json:"ratio,omitempty"`
	Difference   *stats.Difference `json:"difference,omitempty"`
	RatioMissing string            `json:"ratioMissing,omitempty"`
}

// A GoalSummary is the verdict on a goal of the experiment.
type GoalSummary struct {
	Text      string           `json:"text"`
	Judgement *stats.Judgement `json:"judgement,omitempty"`
	Missing   string           `json:"missing,omitempty"`
}

// A SweepSummary is one window of a sweep.
type SweepSummary struct {
	Sweep
	Variant     string       `json:"variant"`
	Percentiles []Percentile `json:"percentiles"`
	Achieved    float64      `json:"noiseBitsPerSecond"` // of the noise
}

// Summarize says of a result what may be said. It is pure: the same result has
// the same summary.
func Summarize(r *Result) *Summary {
	s := &Summary{Title: r.Title, Partial: r.Partial, Searches: r.Searches, Warnings: slices.Clone(r.Warnings)}
	for i := range r.Points {
		s.Points = append(s.Points, r.summarizePoint(i))
	}
	for _, w := range r.Windows {
		if w.Purpose == Sweeping {
			s.Sweep = append(s.Sweep, summarizeSweep(w))
		}
	}
	return s
}

// Name of a load point: "10000/s, 32 connections".
func (p Point) Name() string {
	connections := fmt.Sprintf("%d connections", p.Connections)
	if p.Connections == 1 {
		connections = "1 connection"
	}
	if p.Rate > 0 {
		return numberText(p.Rate) + "/s, " + connections
	}
	return connections + ", closed loop"
}

// windows of a variant at a point, by round.
func (r *Result) windows(point int, variant string) map[int]*Window {
	out := map[int]*Window{}
	for i := range r.Windows {
		if w := &r.Windows[i]; w.Purpose == Repeat && w.Point == point && w.Variant == variant {
			out[w.Repeat] = w
		}
	}
	return out
}

// series of a window; a window without one is a sample whose order is unknown.
func (w *Window) series() *stats.Series {
	if w.Load.Series != nil {
		return w.Load.Series
	}
	return stats.OneWindow(w.Load.Latency)
}

func (r *Result) summarizePoint(point int) PointSummary {
	p := PointSummary{Point: r.Points[point], Name: r.Points[point].Name(), Base: r.Experiment.Base}
	base := r.windows(point, p.Base)
	var family []stats.Comparison
	var judged []*Percentile
	for _, v := range r.Variants {
		windows := r.windows(point, v.Name)
		if len(windows) == 0 {
			continue
		}
		sum := summarizeVariant(v.Name, windows)
		if v.Name != p.Base {
			for i := range sum.Percentiles {
				c := &sum.Percentiles[i]
				ratio, floor, err := latencyRatio(windows, base, c.P)
				if err != nil {
					c.RatioMissing = refusal(err)
					continue
				}
				c.Ratio = &ratio
				family, judged = append(family, stats.Comparison{Ratio: ratio, Floor: floor}), append(judged, c)
			}
		}
		p.Variants = append(p.Variants, sum)
	}
	for i, d := range stats.Compare(family) {
		judged[i].Difference = &d
	}
	for _, g := range r.Experiment.Goals {
		p.Goals = append(p.Goals, r.judge(point, g))
	}
	p.Warnings = r.doubts(point)
	return p
}

func summarizeVariant(name string, windows map[int]*Window) VariantSummary {
	v := VariantSummary{Name: name, Windows: len(windows)}
	var all []*stats.Histogram
	var series []*stats.Series
	var completed, duration, cpu, sent int64
	for _, round := range rounds(windows) {
		w := windows[round]
		l := &w.Load
		all, series = append(all, l.Latency), append(series, w.series())
		v.Requests += l.Intended
		completed += l.Completed
		duration += l.Duration
		v.Errors += l.Errors
		v.TimedOut += l.TimedOut
		v.Unanswered += l.Unanswered
		v.Misses += l.Misses
		to, from := w.noise()
		v.NoiseToSUT += to / float64(len(windows))
		v.NoiseFromSUT += from / float64(len(windows))
		if w.Machine != nil {
			sent += l.Work.Gets + l.Work.Sets
			for _, p := range w.Machine.Processes {
				cpu += p.User + p.System
			}
		}
	}
	v.Mean = stats.Merge(all...).Mean()
	v.Offered = float64(v.Requests) / (float64(duration) / 1e9)
	v.Achieved = float64(completed) / (float64(duration) / 1e9)
	if sent > 0 {
		v.ServerCPU = float64(cpu) / float64(sent)
	}
	v.Percentiles = intervals(series)
	return v
}

func intervals(series []*stats.Series) (out []Percentile) {
	sample := stats.NewSample(series...)
	for _, p := range percentiles {
		c := Percentile{P: p}
		if e, err := sample.Interval(p); err != nil {
			c.Missing = refusal(err)
		} else {
			c.Estimate = &e
		}
		out = append(out, c)
	}
	return out
}

// noise that arrived, bit/s, toward the SUT and from it.
func (w *Window) noise() (to, from float64) {
	for _, n := range w.Noise {
		if n.Direction == experiment.ToSUT {
			to += float64(n.Achieved)
		} else {
			from += float64(n.Achieved)
		}
	}
	return to, from
}

// rounds in order.
func rounds(windows map[int]*Window) []int {
	var out []int
	for i := range windows {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// latencyRatio pairs the rounds that both have. A percentile that every window
// carries is compared window by window; one that only all of them carry, over
// all of them.
func latencyRatio(variant, base map[int]*Window, p float64) (stats.Ratio, *stats.Floor, error) {
	var each []stats.Pair
	var pooled []stats.SeriesPair
	var same []int64
	whole := true
	for _, i := range rounds(variant) {
		b, ok := base[i]
		if !ok {
			continue
		}
		v := variant[i]
		pooled = append(pooled, stats.SeriesPair{Variant: v.series(), Base: b.series()})
		x, err1 := stats.Percentile(v.Load.Latency, p)
		y, err2 := stats.Percentile(b.Load.Latency, p)
		whole = whole && err1 == nil && err2 == nil
		each = append(each, stats.Pair{Variant: x, Base: y})
		same = append(same, y)
	}
	if !whole {
		ratio, err := stats.PooledRatio(pooled, p, 1)
		return ratio, nil, err
	}
	ratio, err := stats.PairedRatio(each)
	if err != nil {
		return ratio, nil, err
	}
	if floor, err := stats.NoiseFloor(same, len(each)); err == nil {
		return ratio, &floor, nil
	}
	return ratio, nil, nil
}

// refusal says in a few words what is missing.
func refusal(err error) string {
	var few *stats.TooFewError
	var blind *stats.BlindError
	if errors.As(err, &blind) {
		return "needs more windows"
	}
	if !errors.As(err, &few) {
		return err.Error()
	}
	if few.Have >= few.Need {
		// More of the same is worth as little: stalls have to become fewer, or
		// repeats more.
		worth := fmt.Sprintf("%.0f", few.Effective)
		if few.Effective < 1 {
			worth = "less than 1"
		}
		return fmt.Sprintf("needs %d, have %d worth %s", few.Need, few.Have, worth)
	}
	return fmt.Sprintf("needs %d more", few.Need-few.Have)
}

// judge holds a goal against the windows of a point.
func (r *Result) judge(point int, g experiment.Goal) GoalSummary {
	what := map[string]string{experiment.MeasureRate: "achieved rate", experiment.MeasureNoise: "achieved noise"}[g.Measure]
	if g.Measure == experiment.MeasureLatency {
		what = percentileText(g.Percentile)
	}
	s := GoalSummary{Text: fmt.Sprintf("%s of %s at most %s times that of %s", what, g.Variant, numberText(g.AtMost), g.Base)}
	if g.AtMost == 0 {
		s.Text = fmt.Sprintf("%s of %s at least %s times that of %s", what, g.Variant, numberText(g.AtLeast), g.Base)
	}
	variant, base := r.windows(point, g.Variant), r.windows(point, g.Base)
	ratio, floor, err := goalRatio(g, variant, base)
	if err != nil {
		s.Missing = refusal(err)
		return s
	}
	j := stats.Judge(ratio, g.AtMost, floor)
	if g.AtMost == 0 {
		j = stats.JudgeAtLeast(ratio, g.AtLeast)
	}
	s.Judgement = &j
	return s
}

func goalRatio(g experiment.Goal, variant, base map[int]*Window) (stats.Ratio, *stats.Floor, error) {
	if g.Measure == experiment.MeasureLatency {
		return latencyRatio(variant, base, g.Percentile)
	}
	of := func(w *Window) int64 {
		if g.Measure == experiment.MeasureRate {
			return int64(math.Round(float64(w.Load.Completed) / float64(w.Load.Duration) * 1e9))
		}
		to, from := w.noise()
		return int64(to + from)
	}
	var pairs []stats.Pair
	for _, i := range rounds(variant) {
		if b, ok := base[i]; ok {
			pairs = append(pairs, stats.Pair{Variant: of(variant[i]), Base: of(b)})
		}
	}
	ratio, err := stats.PairedRatio(pairs)
	return ratio, nil, err
}

func summarizeSweep(w Window) SweepSummary {
	to, from := w.noise()
	return SweepSummary{Sweep: *w.Sweep, Variant: w.Variant, Percentiles: intervals([]*stats.Series{w.series()}), Achieved: to + from}
}

// once keeps the first of equal texts.
func once(texts []string) []string {
	var out []string
	for _, t := range texts {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

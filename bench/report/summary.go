// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"slices"

	"github.com/niclane/niclane/bench/stats"
)

// Percentiles shown.
var percentiles = [...]float64{50, 90, 99, 99.9}

// judged are the percentiles with a goal.
var judged = [...]float64{50, 99}

// curvePoints of a plotted distribution per nine.
const curvePoints = 16

// Summary is derived from a Result's runs.
type Summary struct {
	Latency []LatencyRow `json:"latency"`
	Ratios  []RatioRow   `json:"ratios"`
	Noise   []NoiseRow   `json:"noise,omitempty"`
	Hops    []HopRow     `json:"hops,omitempty"`
	CPU     []CPURow     `json:"cpu,omitempty"`
	Sweep   []SweepRow   `json:"sweep,omitempty"`
	// Floor of the host from Result.Hiccups.
	Floor []FloorRow `json:"floor,omitempty"`
	// FloorCurve is the wake-up lateness of all CPUs together.
	FloorCurve []stats.Step `json:"floorCurve,omitempty"`
	// Notes say what the host's noise forbids to conclude.
	Notes []string `json:"notes,omitempty"`
	// Warnings of all runs with how often each occurred, and of the summary itself.
	Warnings []string `json:"warnings,omitempty"`
}

// LatencyRow is one variant, from the merged histograms of its repeats.
type LatencyRow struct {
	Variant     string       `json:"variant"`
	Repeats     int          `json:"repeats"`
	Samples     int64        `json:"samples"`
	Rate        float64      `json:"ratePerSecond"` // achieved, mean over repeats
	Mean        float64      `json:"meanNs"`
	Values      []Value      `json:"percentiles"`
	Unanswered  int64        `json:"unanswered"`
	TimedOut    int64        `json:"timedOut"`
	Retransmits uint64       `json:"retransmits"`
	WakeupP50   int64        `json:"wakeupP50Ns"` // the generator's own lateness
	WakeupP99   int64        `json:"wakeupP99Ns"`
	Curve       []stats.Step `json:"curve"`
}

// Value is a percentile or the reason why there is none.
type Value struct {
	P       float64 `json:"p"`
	NS      int64   `json:"ns,omitempty"`
	Missing string  `json:"missing,omitempty"`
}

func (l LatencyRow) mean() string {
	if l.Samples == 0 {
		return "~"
	}
	return duration(l.Mean)
}

// RatioRow compares one percentile of a variant with another one's by pairs of
// neighbouring repeats.
type RatioRow struct {
	Variant string      `json:"variant"`
	To      string      `json:"to"`
	P       float64     `json:"p"`
	Pairs   []PairPoint `json:"pairs"`
	// Ratio is nil when Missing says why.
	Ratio   *stats.Ratio `json:"ratio,omitempty"`
	Missing string       `json:"missing,omitempty"`
	// Floor of To against itself, for the same number of pairs.
	Floor *stats.Floor `json:"floor,omitempty"`
	// Judgement against the goal; only lane to idle has one.
	Judgement *stats.Judgement `json:"judgement,omitempty"`
}

// PairPoint is one repeat's pair.
type PairPoint struct {
	Repeat int `json:"repeat"`
	stats.Pair
}

// Summarize fills r.Summary from the runs.
func Summarize(r *Result) error {
	if r.Schema != Schema {
		return fmt.Errorf("result schema %q: want %q", r.Schema, Schema)
	}
	for i, v := range r.Variants {
		if slices.ContainsFunc(r.Variants[:i], func(o Variant) bool { return o.Name == v.Name }) {
			return fmt.Errorf("variants[%d]: %q is named twice", i, v.Name)
		}
	}
	for i, run := range r.Runs {
		if run.Load.Latency == nil {
			return fmt.Errorf("runs[%d]: no latency histogram", i)
		}
		if !slices.ContainsFunc(r.Variants, func(v Variant) bool { return v.Name == run.Variant }) {
			return fmt.Errorf("runs[%d]: variant %q is not in variants", i, run.Variant)
		}
		for j, o := range r.Runs[:i] {
			if o.Variant == run.Variant && o.Repeat == run.Repeat {
				return fmt.Errorf("runs[%d] and runs[%d]: both are repeat %d of %q", j, i, run.Repeat, run.Variant)
			}
		}
	}
	s := &Summary{}
	for _, v := range r.Variants {
		s.Latency = append(s.Latency, latencyRow(r, v.Name))
	}
	for _, v := range r.Variants {
		if v.Name == Idle {
			continue
		}
		for _, p := range judged {
			s.Ratios = append(s.Ratios, ratioRow(r, v.Name, Idle, p))
		}
	}
	s.Noise = noiseRows(r)
	s.Hops = hopRows(r)
	s.CPU = cpuRows(r)
	s.Sweep = sweepRows(r)
	s.Floor, s.FloorCurve = floorRows(r)
	s.Notes = notes(r, s)
	s.Warnings = warnings(r)
	r.Summary = s
	return nil
}

// runs returns the runs of a variant in order of Repeat.
func (r *Result) runs(variant string) []*Run {
	var runs []*Run
	for i := range r.Runs {
		if r.Runs[i].Variant == variant {
			runs = append(runs, &r.Runs[i])
		}
	}
	slices.SortFunc(runs, func(a, b *Run) int { return a.Repeat - b.Repeat })
	return runs
}

func latencyRow(r *Result, variant string) LatencyRow {
	row := LatencyRow{Variant: variant}
	var latency, wakeup []*stats.Histogram
	for _, run := range r.runs(variant) {
		row.Repeats++
		row.Rate += run.Load.AchievedRate
		row.Unanswered += run.Load.Unanswered
		row.TimedOut += run.Load.TimedOut
		row.Retransmits += run.Load.Retransmits
		latency = append(latency, run.Load.Latency)
		wakeup = append(wakeup, run.Load.Wakeup)
	}
	if row.Repeats > 0 {
		row.Rate /= float64(row.Repeats)
	}
	all := stats.Merge(latency...)
	row.Samples, row.Mean = all.Count(), all.Mean()
	for _, p := range percentiles {
		row.Values = append(row.Values, value(all, p))
	}
	row.Curve = stats.Curve(all, curvePoints)
	w := stats.Merge(wakeup...)
	row.WakeupP50, row.WakeupP99 = w.ValueAt(50), w.ValueAt(99)
	return row
}

func value(h *stats.Histogram, p float64) Value {
	v := Value{P: p}
	ns, err := stats.Percentile(h, p)
	var few *stats.TooFewError
	switch {
	case errors.As(err, &few):
		v.Missing = fmt.Sprintf("%d samples missing", few.Need-few.Have)
	case err != nil:
		v.Missing = err.Error()
	default:
		v.NS = ns
	}
	return v
}

// minPairs is how many interleaved pairs a goal needs to be judged.
const minPairs = 10

// tooFew is the judgement of a goal that the result cannot carry.
func tooFew(goal float64, reason string) *stats.Judgement {
	return &stats.Judgement{Verdict: stats.TooNoisy, Goal: goal, Reason: reason}
}

// ratioRow compares variant with to, and with the goal where there is one.
func ratioRow(r *Result, variant, to string, p float64) RatioRow {
	row := pairUp(r, variant, to, p)
	if variant != Lane || to != Idle || r.Setup.Goal <= 0 {
		return row
	}
	switch {
	case row.Ratio == nil:
		row.Judgement = tooFew(r.Setup.Goal, row.Missing)
	case row.Ratio.N < minPairs:
		row.Judgement = tooFew(r.Setup.Goal, fmt.Sprintf("%d pairs, want at least %d", row.Ratio.N, minPairs))
	default:
		j := stats.Judge(*row.Ratio, r.Setup.Goal, row.Floor)
		row.Judgement = &j
	}
	return row
}

// pairUp pairs the repeats that both variants have.
func pairUp(r *Result, variant, to string, p float64) RatioRow {
	row := RatioRow{Variant: variant, To: to, P: p}
	base := make(map[int]int64)
	var floor []int64
	for _, run := range r.runs(to) {
		ns, err := stats.Percentile(run.Load.Latency, p)
		if err != nil {
			row.Missing = fmt.Sprintf("%s repeat %d: %v", to, run.Repeat, err)
			return row
		}
		base[run.Repeat] = ns
		floor = append(floor, ns)
	}
	var pairs []stats.Pair
	for _, run := range r.runs(variant) {
		ns, err := stats.Percentile(run.Load.Latency, p)
		if err != nil {
			row.Missing = fmt.Sprintf("%s repeat %d: %v", variant, run.Repeat, err)
			return row
		}
		if b, ok := base[run.Repeat]; ok {
			pair := stats.Pair{Variant: ns, Base: b}
			pairs = append(pairs, pair)
			row.Pairs = append(row.Pairs, PairPoint{run.Repeat, pair})
		}
	}
	ratio, err := stats.PairedRatio(pairs)
	if err != nil {
		row.Missing = err.Error()
		return row
	}
	row.Ratio = &ratio
	if f, err := stats.NoiseFloor(floor, len(pairs)); err == nil {
		row.Floor = &f
	}
	return row
}

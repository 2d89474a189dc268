// SPDX-License-Identifier: Apache-2.0

package result

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/stats"
)

// A Summary is everything that package result concludes from a result.
type Summary struct {
	Title   string   `json:"title"`
	Virtual bool     `json:"virtual,omitempty"`
	Partial *Partial `json:"partial,omitempty"`
	// Trial has the verdicts of a trial.
	Trial *TrialSummary `json:"trial,omitempty"`
	// Percentiles are those of every variant at every load point, in this order.
	Percentiles []float64      `json:"percentiles"`
	Points      []PointSummary `json:"points"`
	// SLAs are the experiment's, in its order.
	SLAs     []SLASummary   `json:"slas,omitempty"`
	Searches []Search       `json:"searches,omitempty"`
	Sweep    []SweepSummary `json:"sweep,omitempty"`
	// Floor says how late the host woke a thread that only slept.
	Floor []Floor `json:"floor,omitempty"`
	// Slowest is the round that has the slowest request of all repeats.
	Slowest *TimeLine `json:"slowest,omitempty"`
	// Doubts are the doubts about all load points, merged.
	Doubts   []Doubt  `json:"doubts,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// A PointSummary compares the variants at a load point.
type PointSummary struct {
	Point
	Name     string           `json:"name"`
	Base     string           `json:"base"`
	Variants []VariantSummary `json:"variants"`
	Goals    []GoalSummary    `json:"goals,omitempty"`
	// Thresholds are those of the variants' Exceed, in ns, evenly spaced.
	Thresholds []int64 `json:"thresholdsNs,omitempty"`
	// Machine has counters of the SUT during the windows. Each has a value for each of Variants.
	Machine []Use   `json:"machine,omitempty"`
	Doubts  []Doubt `json:"doubts,omitempty"`
	// Drift says how a trial's load changed.
	Drift *Drift `json:"drift,omitempty"`
}

// A VariantSummary is all repeats of a variant at a load point.
type VariantSummary struct {
	Name     string  `json:"name"`
	Windows  int     `json:"windows"`
	Requests int64   `json:"requests"` // number of requests that were due
	Mean     float64 `json:"meanNs"`
	// MeanRatio is the mean divided by the base's, by pairs of repeats. It is nil for the base, and
	// with fewer than two pairs. FirstByteMeanRatio likewise. All ratios of means are judged together.
	MeanRatio *Judged `json:"meanRatio,omitempty"`
	// Percentiles of the latency, in the order of Summary.Percentiles. The latency is counted from the
	// intended send time to the last byte.
	Percentiles []Percentile `json:"percentiles"`
	// FirstByte has the same percentiles, but up to the first byte. HTTP only.
	FirstByte          []Percentile `json:"firstByte,omitempty"`
	FirstByteMean      float64      `json:"firstByteMeanNs,omitempty"`
	FirstByteMeanRatio *Judged      `json:"firstByteMeanRatio,omitempty"`
	// Jitter is nil if the sample is too small for P99.
	Jitter *Jitter `json:"jitter,omitempty"`
	// Curve is the distribution of the latency, up to the highest percentile that the sample can
	// support.
	Curve []stats.Step `json:"curve"`
	// Exceed has the share of requests slower than each of Thresholds. Bucketed is the mean that a
	// reader would compute from these shares.
	Exceed   []stats.Share `json:"exceed,omitempty"`
	Bucketed *Bucketed     `json:"bucketed,omitempty"`
	// Pairs has, for each of Percentiles, the ratio of each repeat to the base variant. The list is
	// empty if a single repeat has too few samples for the percentile.
	Pairs [][]PairRatio `json:"pairs,omitempty"`
	// Offered is the rate of requests that were due, Achieved that of answers, per second, over all
	// windows.
	Offered  float64 `json:"offeredPerSecond"`
	Achieved float64 `json:"achievedPerSecond"`
	// Short is the share of the requested rate that was not achieved. Open loop only.
	Short float64 `json:"short,omitempty"`
	// Errors, TimedOut and Unanswered count requests. Misses counts requests that missed the cache.
	Errors     int64 `json:"errors"`
	TimedOut   int64 `json:"timedOut"`
	Unanswered int64 `json:"unanswered"`
	Misses     int64 `json:"misses"`
	// NoiseToSUT and NoiseFromSUT are the rates of the noise that arrived, in bit/s of payload. They
	// are means over the windows.
	NoiseToSUT   float64 `json:"noiseToSUTBitsPerSecond,omitempty"`
	NoiseFromSUT float64 `json:"noiseFromSUTBitsPerSecond,omitempty"`
	// ServerCPU is the server's processor time per request sent, in ns, warm-up included; 0: not
	// known.
	ServerCPU float64 `json:"serverCPUNs,omitempty"`
	// ServerCPURatio is this time divided by the base's, by pairs of repeats. It is nil for the base,
	// and with fewer than two pairs.
	ServerCPURatio *stats.Ratio `json:"serverCPURatio,omitempty"`

	Generator Generator      `json:"generator"`
	Noise     []NoiseSummary `json:"noise,omitempty"`
	Hops      []HopSummary   `json:"hops,omitempty"`
	Traffic   *Traffic       `json:"traffic,omitempty"`
	Power     []PowerSummary `json:"power,omitempty"`
	// Live compares what a trial measured beside the latency.
	Live *LiveSummary `json:"live,omitempty"`
}

// A Percentile is a percentile with its interval and its ratio to the base variant. If one of them
// is missing, a text says why.
type Percentile struct {
	P        float64         `json:"p"`
	Estimate *stats.Estimate `json:"estimate,omitempty"`
	Missing  string          `json:"missing,omitempty"`

	Ratio        *stats.Ratio      `json:"ratio,omitempty"`
	Difference   *stats.Difference `json:"difference,omitempty"`
	RatioMissing string            `json:"ratioMissing,omitempty"`
	// ToTell is how many repeats would tell the ratio from 1, if noise may explain it (stats.PairsToTell);
	// 0: not known, or so many that there is hardly a difference. Trials only.
	ToTell int `json:"pairsToTell,omitempty"`
	// Floor is how much repeats of the base differ; nil: not known.
	Floor *stats.Floor `json:"-"`
}

// A PairRatio is a percentile of one repeat, divided by the percentile of the base in the same
// round.
type PairRatio struct {
	Repeat int     `json:"repeat"` // number of the repeat, from 1
	Ratio  float64 `json:"ratio"`
}

// A GoalSummary is the verdict on a goal of the experiment.
type GoalSummary struct {
	Text      string           `json:"text"`
	Judgement *stats.Judgement `json:"judgement,omitempty"`
	Missing   string           `json:"missing,omitempty"`
}

// A SweepSummary is what one window of a sweep measured.
type SweepSummary struct {
	Sweep
	Variant     string       `json:"variant"`
	Percentiles []Percentile `json:"percentiles"`
	Achieved    float64      `json:"noiseBitsPerSecond"` // achieved rate of the noise
}

// Summarize returns the summary of a result. It is pure: the same result has the same summary.
func Summarize(r *Result) *Summary {
	s := &Summary{
		Title: r.Title, Virtual: r.Virtual, Partial: r.Partial, Percentiles: r.percentiles(), Searches: r.Searches,
		Floor: r.floor(), Slowest: r.slowest(), Warnings: slices.Clone(r.Warnings),
	}
	var all doubts
	if len(r.Points) > 0 {
		s.Points = make([]PointSummary, len(r.Points))
	}
	if r.Trial != nil {
		parallel(len(s.Points), func(i int) { s.Points[i] = r.summarizeLive(i, s.Percentiles) })
		s.Trial = r.judgeTrial(s.Points)
	} else {
		parallel(len(s.Points), func(i int) { s.Points[i] = r.summarizePoint(i, s.Percentiles) })
	}
	for _, p := range s.Points {
		all.merge(p.Doubts)
	}
	s.Doubts = all.list
	for _, sla := range r.Experiment.SLAs() {
		s.SLAs = append(s.SLAs, summarizeSLA(sla, s.Points, r.Variants))
	}
	for i := range r.Windows {
		if w := &r.Windows[i]; w.Purpose == Sweeping {
			s.Sweep = append(s.Sweep, summarizeSweep(w, s.Percentiles))
		}
	}
	return s
}

// Name returns the name of a load point: "10000/s, 32 connections", or the service of a trial.
func (p Point) Name() string {
	if p.Service != "" {
		return p.Service
	}
	connections := fmt.Sprintf("%d connections", p.Connections)
	if p.Connections == 1 {
		connections = "1 connection"
	}
	if p.Rate > 0 {
		return numberText(p.Rate) + "/s, " + connections
	}
	return connections + ", closed loop"
}

// windows returns the windows of a variant at a load point, by round.
func (r *Result) windows(point int, variant string) map[int]*Window {
	out := map[int]*Window{}
	for i := range r.Windows {
		if w := &r.Windows[i]; w.Purpose == Repeat && w.Point == point && w.Variant == variant {
			out[w.Repeat] = w
		}
	}
	return out
}

func (r *Result) summarizePoint(point int, percentiles []float64) PointSummary {
	p := PointSummary{Point: r.Points[point], Name: r.Points[point].Name(), Base: r.Experiment.Base}
	base := r.windows(point, p.Base)
	var all []map[int]*Window
	var samples []*stats.Sample
	for _, v := range r.Variants {
		windows := r.windows(point, v.Name)
		if len(windows) == 0 {
			continue
		}
		sum, sample := summarizeVariant(v.Name, windows, percentiles)
		if p.Rate > 0 {
			sum.Short = max(0, 1-sum.Achieved/p.Rate)
		}
		p.Variants, all, samples = append(p.Variants, sum), append(all, windows), append(samples, sample)
	}
	p.Thresholds = thresholds(p.Variants)
	var latency, first family
	var means judging
	for i := range p.Variants {
		v := &p.Variants[i]
		v.exceed(samples[i], p.Thresholds)
		if v.Name == p.Base {
			continue
		}
		latency.compare(v.Percentiles, all[i], base, toLastByte)
		first.compare(v.FirstByte, all[i], base, toFirstByte)
		v.MeanRatio = means.add(meanRatio(all[i], base, toLastByte))
		v.FirstByteMeanRatio = means.add(meanRatio(all[i], base, toFirstByte))
		v.Pairs = pairs(all[i], base, percentiles)
		if ratio, err := pairedRatio(all[i], base, (*Window).serverCPU); err == nil {
			v.ServerCPURatio = &ratio
		}
	}
	latency.judge()
	first.judge()
	means.judge()
	for _, g := range r.Experiment.Goals {
		p.Goals = append(p.Goals, r.judge(point, g))
	}
	p.Machine = machineUse(all)
	p.Doubts = r.doubts(point, latency.few(), first.few())
	return p
}

// A view chooses one latency of a window: to the first byte or to the last byte.
type view func(*Window) (*stats.Histogram, *stats.Series)

func toLastByte(w *Window) (*stats.Histogram, *stats.Series) { return w.Load.Latency, w.Load.Series }

func toFirstByte(w *Window) (*stats.Histogram, *stats.Series) {
	return w.Load.FirstByte, w.Load.FirstByteSeries
}

// series returns the series of a window. If a window has only a histogram, it returns a series of
// one window: the order of the samples is not known.
func (of view) series(w *Window) *stats.Series {
	h, s := of(w)
	if s != nil {
		return s
	}
	return stats.OneWindow(h)
}

// A family is the set of all ratios of a load point, which are judged together.
type family struct {
	members []stats.Comparison
	judged  []*Percentile
}

// compare computes the ratios of a variant's percentiles to the base's and adds them to the family.
func (f *family) compare(percentiles []Percentile, variant, base map[int]*Window, of view) {
	for i := range percentiles {
		c := &percentiles[i]
		ratio, floor, err := latencyRatio(variant, base, c.P, of)
		if err != nil {
			c.RatioMissing = refusal(err)
			continue
		}
		c.Ratio, c.Floor = &ratio, floor
		f.members, f.judged = append(f.members, stats.Comparison{Ratio: ratio, Floor: floor}), append(f.judged, c)
	}
}

func (f *family) judge() {
	for i, d := range stats.Compare(f.members) {
		f.judged[i].Difference = &d
	}
}

// few returns a text if there are too few repeats to tell any of the ratios from 1; otherwise "".
// It also returns "" with fewer than stats.MinWilcoxon repeats: then another test applies, which
// may tell some ratios from 1.
func (f *family) few() string {
	repeats := 0
	for _, m := range f.members {
		if m.Ratio.N < stats.MinWilcoxon {
			return ""
		}
		repeats = max(repeats, m.Ratio.N)
	}
	need := stats.PairsFor(len(f.members))
	if repeats == 0 || repeats >= need {
		return ""
	}
	return fmt.Sprintf("%d repeats cannot tell any of %d comparisons from chance, however large the difference; "+
		"%d repeats can", repeats, len(f.members), need)
}

// pairs returns, for each percentile, the ratio to the base in each round. It leaves out a
// percentile for which one of the windows has too few samples.
func pairs(variant, base map[int]*Window, percentiles []float64) [][]PairRatio {
	out := make([][]PairRatio, len(percentiles))
	for i, p := range percentiles {
		var each []PairRatio
		complete := true
		for _, round := range rounds(variant) {
			b, ok := base[round]
			if !ok {
				continue
			}
			x, err1 := stats.Percentile(variant[round].Load.Latency, p)
			y, err2 := stats.Percentile(b.Load.Latency, p)
			complete = complete && err1 == nil && err2 == nil && y > 0
			if complete {
				each = append(each, PairRatio{round + 1, float64(x) / float64(y)})
			}
		}
		if complete {
			out[i] = each
		}
	}
	return out
}

func summarizeVariant(name string, windows map[int]*Window, percentiles []float64) (VariantSummary, *stats.Sample) {
	v := VariantSummary{Name: name, Windows: len(windows)}
	var completed, duration, cpu, sent int64
	for _, round := range rounds(windows) {
		w := windows[round]
		l := &w.Load
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
		if w.Machine != nil || w.Live != nil {
			sent += w.sent()
			cpu += w.busy()
		}
	}
	v.Offered = float64(v.Requests) / (float64(duration) / 1e9)
	v.Achieved = float64(completed) / (float64(duration) / 1e9)
	if sent > 0 {
		v.ServerCPU = float64(cpu) / float64(sent)
	}
	all, sample := pool(windows, toLastByte)
	v.Mean, v.Curve = all.Mean(), stats.Curve(all, curvePoints)
	v.Percentiles = intervals(sample, percentiles)
	v.Jitter = jitter(v.Percentiles)
	if first, sample := pool(windows, toFirstByte); first.Count() > 0 {
		v.FirstByteMean, v.FirstByte = first.Mean(), intervals(sample, percentiles)
	}
	v.Generator = generator(windows)
	v.Noise = noiseSummaries(windows)
	v.Hops = hops(windows)
	v.Traffic = traffic(windows)
	v.Power = powers(windows)
	return v, sample
}

// curvePoints is the number of points of a distribution between P90 and P99, between P99 and P99.9,
// and so on.
const curvePoints = 16

// sent returns the number of requests that were sent during the time of the machine's counters,
// warm-up included.
func (w *Window) sent() int64 { return w.Load.Work.Gets + w.Load.Work.Sets }

// busy returns the server's processor time in ns, with its work in the kernel.
func (w *Window) busy() (ns int64) {
	if w.Live != nil {
		return w.Live.CPU
	}
	for _, p := range w.Machine.Processes {
		ns += p.User + p.System
	}
	return ns
}

// serverCPU returns the server's processor time in ps per request; 0: not known.
func (w *Window) serverCPU() int64 {
	if w.Machine == nil && w.Live == nil || w.sent() == 0 {
		return 0
	}
	return int64(math.Round(float64(w.busy()) * 1000 / float64(w.sent())))
}

// pool merges the windows of all repeats.
func pool(windows map[int]*Window, of view) (*stats.Histogram, *stats.Sample) {
	var all []*stats.Histogram
	var series []*stats.Series
	for _, i := range rounds(windows) {
		h, _ := of(windows[i])
		all, series = append(all, h), append(series, of.series(windows[i]))
	}
	return stats.Merge(all...), stats.NewSample(series...)
}

func intervals(sample *stats.Sample, percentiles []float64) (out []Percentile) {
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

// noise returns the rates of the noise that arrived at the SUT and of the noise from it, in bit/s.
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

// rounds returns the numbers of the rounds in rising order.
func rounds(windows map[int]*Window) []int { return slices.Sorted(maps.Keys(windows)) }

// latencyRatio compares a percentile in the rounds that both variants have. If every window has
// enough samples for the percentile, it is compared window by window. Otherwise it is compared over
// all windows together.
func latencyRatio(variant, base map[int]*Window, p float64, of view) (stats.Ratio, *stats.Floor, error) {
	var each []stats.Pair
	var pooled []stats.SeriesPair
	var same []int64
	carried := true
	for _, i := range rounds(variant) {
		b, ok := base[i]
		if !ok {
			continue
		}
		v := variant[i]
		pooled = append(pooled, stats.SeriesPair{Variant: of.series(v), Base: of.series(b)})
		vh, _ := of(v)
		bh, _ := of(b)
		x, err1 := stats.Percentile(vh, p)
		y, err2 := stats.Percentile(bh, p)
		carried = carried && err1 == nil && err2 == nil
		each = append(each, stats.Pair{Variant: x, Base: y})
		same = append(same, y)
	}
	if !carried {
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

// refusal says in a few words what a sample lacks.
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
		// More samples do not help here. The run needs fewer stalls, or more repeats.
		worth := fmt.Sprintf("%.0f", few.Effective)
		if few.Effective < 1 {
			worth = "less than 1"
		}
		return fmt.Sprintf("needs %d, have %d worth %s", few.Need, few.Have, worth)
	}
	return fmt.Sprintf("needs %d more", few.Need-few.Have)
}

// judge judges a goal by the windows of a load point.
func (r *Result) judge(point int, g experiment.Goal) GoalSummary {
	what := map[string]string{experiment.MeasureRate: "achieved rate",
		experiment.MeasureNoise:         "achieved noise",
		experiment.MeasureProcessorTime: "processor time per request"}[g.Measure]
	if g.Measure == experiment.MeasureLatency {
		what = PercentileText(g.Percentile)
	}
	s := GoalSummary{Text: fmt.Sprintf("%s of %s at most %s times that of %s", what, g.Variant, numberText(g.AtMost),
		g.Base)}
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
		return latencyRatio(variant, base, g.Percentile, toLastByte)
	}
	for _, windows := range []map[int]*Window{variant, base} {
		for _, i := range rounds(windows) {
			if g.Measure == experiment.MeasureProcessorTime && windows[i].serverCPU() == 0 {
				return stats.Ratio{}, nil, errors.New("the server's processor time is not known")
			}
		}
	}
	ratio, err := pairedRatio(variant, base, func(w *Window) int64 {
		switch g.Measure {
		case experiment.MeasureRate:
			return int64(math.Round(float64(w.Load.Completed) / float64(w.Load.Duration) * 1e9))
		case experiment.MeasureProcessorTime:
			return w.serverCPU()
		}
		to, from := w.noise()
		return int64(to + from)
	})
	return ratio, nil, err
}

// pairedRatio compares a value of the windows of two variants by pairs of repeats.
func pairedRatio(variant, base map[int]*Window, of func(*Window) int64) (stats.Ratio, error) {
	var pairs []stats.Pair
	for _, i := range rounds(variant) {
		if b, ok := base[i]; ok {
			pairs = append(pairs, stats.Pair{Variant: of(variant[i]), Base: of(b)})
		}
	}
	return stats.PairedRatio(pairs)
}

// meanRatio compares the mean of the latency by pairs of repeats.
func meanRatio(variant, base map[int]*Window, of view) (stats.Ratio, error) {
	return pairedRatio(variant, base, func(w *Window) int64 {
		h, _ := of(w)
		if h == nil {
			return 0 // pairedRatio refuses it
		}
		return int64(math.Round(h.Mean() * 1000)) // in ps, so that rounding does not matter
	})
}

func summarizeSweep(w *Window, percentiles []float64) SweepSummary {
	to, from := w.noise()
	sample := stats.NewSample(view(toLastByte).series(w))
	return SweepSummary{Sweep: *w.Sweep, Variant: w.Variant, Percentiles: intervals(sample, percentiles),
		Achieved: to + from}
}

// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"errors"
	"fmt"
	"slices"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// An Outcome is a study with niclane's result.
type Outcome struct {
	Study
	// Result is nil if nothing was measured. Failure is the reason why a run ended early.
	Result  *result.Result
	Failure string
	// Report is the path of the run's own page; "" if there is none.
	Report string

	summaries map[string]*result.Summary // cache of summary, by base variant
}

// A Measured is a claim of the paper with what was measured.
type Measured struct {
	Claim Claim
	// Value is the measured value of the variant Lane. At is the load point, if the claim has another one
	// than the study; "" otherwise.
	Value, At string
	// Against has the ratio of the variant Lane to each of the study's Bases.
	Against []Ratio
	// Verdict says whether the measurement confirms the claim.
	Verdict Verdict
}

// A Ratio is the ratio to one base; nil if it could not be computed, and Missing says why. Value is the
// base's own value, for claims that are not about a ratio.
type Ratio struct {
	Base string
	*stats.Ratio
	Value, Missing string
}

// A Verdict says whether the measurement confirms a claim.
type Verdict string

// Values of Verdict.
const (
	AsGood     Verdict = "as the paper, or better"
	Less       Verdict = "a gain, less than the paper's"
	NoneSeen   Verdict = "within the noise"
	Worse      Verdict = "a loss"
	Unmeasured Verdict = "not measured"
	NoFigure   Verdict = "a gain; the paper has no figure"
)

// Names of the variants that are a paper's own two columns.
const paperOn, paperOff = "paper-on", "paper-off"

// columns reports whether the paper's own two columns were measured. Claims are then held against these.
func (o *Outcome) columns() bool { return o.has(paperOn) && o.has(paperOff) }

// lane returns the variant that corresponds to the paper's "with", and bases those with which it is
// compared.
func (o *Outcome) lane() string {
	if o.columns() {
		return paperOn
	}
	return o.Lane
}

func (o *Outcome) bases() []string {
	if o.columns() {
		return []string{paperOff}
	}
	return o.Bases
}

// differences returns how the experiment differs from the paper's.
func (o *Outcome) differences() []string {
	out := slices.Clone(o.Differences)
	if !o.columns() {
		out = append(out, o.OfVariants...)
	}
	if o.Result == nil || len(o.Result.Server.Instances) < 2 {
		out = append(out, o.OfOne...)
	}
	if o.Result != nil && o.Result.Experiment.Lab != nil {
		out = append(out, o.DifferencesInLab...)
	}
	return out
}

// Point returns the index of the load point at which claims are judged: the last measured one,
// which has the highest load. This choice was made before the measurements.
func (o *Outcome) Point() (int, bool) {
	if o.Result == nil || len(o.Result.Points) == 0 {
		return 0, false
	}
	for i := len(o.Result.Points) - 1; i >= 0; i-- {
		if len(o.windows(i, o.lane())) > 0 {
			return i, true
		}
	}
	return 0, false
}

// windows returns the windows of a variant at a point, by round.
func (o *Outcome) windows(point int, variant string) map[int]*result.Window {
	out := map[int]*result.Window{}
	for i := range o.Result.Windows {
		if w := &o.Result.Windows[i]; w.Purpose == result.Repeat && w.Point == point && w.Variant == variant {
			out[w.Repeat] = w
		}
	}
	return out
}

// has reports whether any window of a variant was measured.
func (o *Outcome) has(variant string) bool {
	return o.Result != nil && slices.ContainsFunc(o.Result.Windows,
		func(w result.Window) bool { return w.Variant == variant })
}

// Measure compares every claim of the study with the result.
func (o *Outcome) Measure() []Measured {
	var out []Measured
	for _, c := range o.Claims {
		m := Measured{Claim: c, Verdict: Unmeasured}
		if point, ok := o.Point(); ok {
			switch c.Measure {
			case MeetsSLA:
				o.judgeSLA(&m)
			case Beyond:
				o.judgeBeyond(&m, point)
			case LinkShare, PerWatt:
				o.judgeDelivery(&m)
			default:
				m = o.judgeLoads(c, point)
			}
		}
		out = append(out, m)
	}
	return out
}

// judgeLoads judges a claim about a ratio at the load point, or at every load of which the paper makes
// it. Then the worst load decides; of several, the highest.
func (o *Outcome) judgeLoads(c Claim, point int) Measured {
	worst := Measured{Claim: c}
	o.judgeRatio(&worst, point)
	if c.Above == 0 {
		return worst
	}
	points := o.Result.Points
	most, loads := 0, 1
	for _, p := range points {
		most = max(most, p.Connections)
	}
	at := point
	for i, p := range points {
		if i == point || p.Connections*c.Of <= c.Above*most || len(o.windows(i, o.lane())) == 0 {
			continue
		}
		loads++
		m := Measured{Claim: c}
		if o.judgeRatio(&m, i); slices.Index(fromWorst, m.Verdict) < slices.Index(fromWorst, worst.Verdict) {
			worst, at = m, i
		}
	}
	worst.At = fmt.Sprintf("%s, the worst of %d loads", points[at].Load(), loads)
	return worst
}

// fromWorst has the verdicts about ratios, the worst first.
var fromWorst = []Verdict{Worse, NoneSeen, Unmeasured, Less, NoFigure, AsGood}

// judgeRatio judges a claim about the ratio of the variant Lane to the first base.
func (o *Outcome) judgeRatio(m *Measured, point int) {
	m.Value = o.value(point, o.lane(), m.Claim)
	for _, base := range o.bases() {
		if !o.has(base) {
			continue
		}
		r, err := o.ratio(point, base, m.Claim)
		x := Ratio{Base: base, Ratio: r}
		if err != nil {
			x.Missing = err.Error()
		}
		m.Against = append(m.Against, x)
	}
	m.Verdict = m.verdict()
}

// verdict compares the ratio to the first base, the paper's "without", with the paper's ratio.
func (m *Measured) verdict() Verdict {
	if len(m.Against) == 0 || m.Against[0].Ratio == nil {
		return Unmeasured
	}
	r := m.Against[0].Ratio
	low, high, better := r.Low, r.High, r.Estimate
	paper := m.Claim.Paper
	if m.Claim.higherIsBetter() { // inverted, so that a smaller ratio is better for every claim
		low, high, better, paper = 1/r.High, 1/r.Low, 1/r.Estimate, 1/paper
	}
	switch {
	case low <= 1 && high >= 1:
		return NoneSeen
	case low > 1:
		return Worse
	case m.Claim.Paper == 0:
		return NoFigure
	case better <= paper:
		return AsGood
	}
	return Less
}

func (c Claim) higherIsBetter() bool {
	return c.Measure == Rate || c.Measure == RateInSLA
}

// of returns the claim's measure of one window. It is an integer in a small unit, so that rounding
// does not matter. It is 0 if the window has too few samples.
func (c Claim) of(w *result.Window) int64 {
	percentile := func(h *stats.Histogram) int64 {
		if h == nil {
			return 0
		}
		v, err := stats.Percentile(h, c.P)
		if err != nil {
			return 0
		}
		return v
	}
	switch c.Measure {
	case Percentile:
		return percentile(w.Load.Latency)
	case FirstByte:
		return percentile(w.Load.FirstByte)
	case Mean:
		if w.Load.Latency != nil {
			return int64(w.Load.Latency.Mean())
		}
	case Rate:
		return int64(w.Load.AchievedRate * 1000)
	}
	return 0
}

// errFew says that a single repeat has too few samples for a percentile.
var errFew = errors.New("a repeat has too few requests for it")

// ratio returns the ratio of the variant Lane to a base. It compares repeat by repeat.
func (o *Outcome) ratio(point int, base string, c Claim) (*stats.Ratio, error) {
	if c.Measure == RateInSLA {
		a, b := o.rateInSLA(o.lane(), c), o.rateInSLA(base, c)
		switch {
		case len(o.Result.Experiment.SLAs()) <= c.SLA:
			return nil, errors.New("the experiment has no such SLA")
		case a == 0 && b == 0:
			return nil, errors.New("neither is within the SLA at any rate that was measured")
		case a == 0:
			return nil, fmt.Errorf("%s is within the SLA at %.0f/s, %s at no rate that was measured", base, b, o.lane())
		case b == 0:
			return nil, fmt.Errorf("%s is within the SLA at no rate that was measured", base)
		}
		return &stats.Ratio{Estimate: a / b, Low: a / b, High: a / b, N: 1,
			Method: "ratio of the highest rates that were measured within the SLA; no interval"}, nil
	}
	if c.Measure == Percentile || c.Measure == FirstByte {
		if r, missing, ok := o.summarized(point, base, c); ok {
			return r, missing
		}
	}
	lane, other := o.windows(point, o.lane()), o.windows(point, base)
	var pairs []stats.Pair
	for round, w := range lane {
		if b := other[round]; b != nil {
			pairs = append(pairs, stats.Pair{Variant: c.of(w), Base: c.of(b)})
		}
	}
	slices.SortFunc(pairs, func(a, b stats.Pair) int { return int(a.Variant - b.Variant) })
	for _, p := range pairs {
		if p.Variant <= 0 || p.Base <= 0 {
			return nil, errFew
		}
	}
	r, err := stats.PairedRatio(pairs)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// summarized returns the ratio from the result's summary. The summary also has percentiles for
// which only all repeats together have enough samples. ok is false if the summary does not have the
// ratio.
func (o *Outcome) summarized(point int, base string, c Claim) (*stats.Ratio, error, bool) {
	s := o.summary(base)
	i := slices.IndexFunc(s.Points[point].Variants, func(v result.VariantSummary) bool { return v.Name == o.lane() })
	if i < 0 {
		return nil, nil, false
	}
	list := s.Points[point].Variants[i].Percentiles
	if c.Measure == FirstByte {
		list = s.Points[point].Variants[i].FirstByte
	}
	j := slices.IndexFunc(list, func(x result.Percentile) bool { return x.P == c.P })
	switch {
	case j < 0:
		return nil, nil, false
	case list[j].Ratio != nil:
		return list[j].Ratio, nil, true
	case list[j].Missing != "":
		return nil, errFew, true
	}
	return nil, errors.New(list[j].RatioMissing), true
}

// summary returns the summary of the result, with base as the base of all ratios.
func (o *Outcome) summary(base string) *result.Summary {
	if o.summaries == nil {
		o.summaries = map[string]*result.Summary{}
	}
	if o.summaries[base] == nil {
		r, e := *o.Result, *o.Result.Experiment
		e.Base, r.Experiment = base, &e
		o.summaries[base] = result.Summarize(&r)
	}
	return o.summaries[base]
}

// rateInSLA returns the highest rate that a variant achieved within the claim's SLA: the rate that the
// search for this SLA found or, without a search, that of the highest load that meets it; 0: none.
func (o *Outcome) rateInSLA(variant string, c Claim) float64 {
	sla, ok := o.sla(c, variant)
	if !ok {
		return 0
	}
	for _, s := range o.Result.Searches {
		g := s.Config.Goal
		if s.Variant == variant && g.Percentile == sla.Percentile && g.Limit == sla.At && s.Result != nil &&
			s.Result.Rate > 0 {
			return s.Result.Rate
		}
	}
	if sla.Holds == nil {
		return 0
	}
	return sla.Holds.Achieved
}

// value renders a variant's value, over all repeats.
func (o *Outcome) value(point int, variant string, c Claim) string {
	all, first := stats.NewHistogram(), stats.NewHistogram()
	rate, n := 0.0, 0
	for _, w := range o.windows(point, variant) {
		all = stats.Merge(all, w.Load.Latency)
		if w.Load.FirstByte != nil {
			first = stats.Merge(first, w.Load.FirstByte)
		}
		rate += w.Load.AchievedRate
		n++
	}
	if n == 0 {
		return "not measured"
	}
	percentile := func(h *stats.Histogram) string {
		v, err := stats.Percentile(h, c.P)
		if err != nil {
			return "too few requests"
		}
		return result.DurationText(float64(v))
	}
	switch c.Measure {
	case Percentile:
		return percentile(all)
	case FirstByte:
		return percentile(first)
	case Mean:
		return result.DurationText(all.Mean())
	case Rate:
		return fmt.Sprintf("%.0f/s", rate/float64(n))
	case RateInSLA:
		if r := o.rateInSLA(variant, c); r > 0 {
			return fmt.Sprintf("%.0f/s", r)
		}
		return "at no rate that was measured"
	}
	return "not measured"
}

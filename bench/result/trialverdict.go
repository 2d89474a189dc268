// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/stats"
)

// A TrialSummary is what a trial concludes.
type TrialSummary struct {
	// Verdicts are those of the variants with lanes, in the order of the variants.
	Verdicts []TrialVerdict `json:"verdicts"`
	// Best is the variant to keep, if there is one; with several, the one with the lowest ratio of P99.
	// BestText says how it compares with the next one.
	Best     string `json:"best,omitempty"`
	BestText string `json:"bestText,omitempty"`
	// Comparisons is the number of ratios that are judged together, without those of single waits.
	Comparisons int `json:"comparisons"`
}

// An Outcome is the verdict on a variant of a trial.
type Outcome string

// The outcomes.
const (
	// Keep: something is better, and nothing is worse.
	Keep Outcome = "keep"
	// Weigh: something is better, and something is worse.
	Weigh Outcome = "weigh"
	// DoNotKeep: nothing is better. Either something is worse, or a gain that matters is ruled out.
	DoNotKeep Outcome = "do not keep"
	// CannotTell: noise may explain all differences, and a gain that matters is possible.
	CannotTell Outcome = "cannot tell"
)

// A TrialVerdict is the verdict on a variant.
type TrialVerdict struct {
	Variant string  `json:"variant"`
	Outcome Outcome `json:"outcome"`
	// Reasons are sentences without a full stop.
	Reasons []string `json:"reasons"`
	// Windows is how many windows of each variant would tell, for CannotTell; 0: not known.
	Windows int `json:"windowsToTell,omitempty"`
}

// String renders "do not keep a.yaml".
func (v TrialVerdict) String() string {
	if v.Outcome == CannotTell {
		return fmt.Sprintf("%s whether to keep %s", v.Outcome, v.Variant)
	}
	return fmt.Sprintf("%s %s", v.Outcome, v.Variant)
}

// A ratioAt is a ratio of a trial, and where its judgement goes.
type ratioAt struct {
	variant, service, name string
	neighbour              bool
	stats.Comparison
	judge func(d stats.Difference, toTell int)
	text  string // of the difference, once judged
	// change is the difference of a percentile to the base's in ns, 0 if it is not known. inHost says that it
	// is of the whole time in the host, moreLoad that the service had more load than in the base.
	change           float64
	inHost, moreLoad bool
}

// told reports whether noise alone does not explain the ratio.
func (x *ratioAt) told() bool { return x.text != stats.Same }

// String renders "memcached: P99 ×0.41 (0.38 to 0.44)".
func (x *ratioAt) String() string {
	return fmt.Sprintf("%s: %s %s", x.service, x.name, ratioText(x.Ratio, nil))
}

// judgeTrial judges all ratios of a trial. Those of the whole time in the host and of the measures are
// one family. Those of the single waits are another one, which is judged only if one of the first
// differs: so a lane that does nothing shows a difference in at most 5 % of trials (closed testing:
// Maurer, Hothorn and Lehmacher 1995).
func (r *Result) judgeTrial(points []PointSummary) *TrialSummary {
	var first, waits []*ratioAt
	for i := range points {
		for j := range points[i].Variants {
			a, b := ratiosOf(&points[i], &points[i].Variants[j])
			first, waits = append(first, a...), append(waits, b...)
		}
	}
	judgeAll(first, true)
	judgeAll(waits, slices.ContainsFunc(first, (*ratioAt).told))
	s := &TrialSummary{Verdicts: []TrialVerdict{}, Comparisons: len(first)}
	for _, v := range r.Variants {
		if v.Name == r.Experiment.Base {
			continue
		}
		of := func(x *ratioAt) bool { return x.variant != v.Name }
		s.Verdicts = append(s.Verdicts, r.verdict(v.Name, points,
			slices.DeleteFunc(slices.Clone(first), of), slices.DeleteFunc(slices.Clone(waits), of), len(first)))
	}
	s.choose(r, first)
	return s
}

// ratiosOf returns the ratios of a variant at a service: those that are judged first, and those of waits.
func ratiosOf(p *PointSummary, v *VariantSummary) (first, waits []*ratioAt) {
	l := v.Live.Load
	moreLoad := l != nil && l.Difference.Text != stats.Same && l.Estimate > 1
	at := func(name string, r *stats.Ratio, floor *stats.Floor, judge func(stats.Difference, int)) *ratioAt {
		return &ratioAt{variant: v.Name, service: p.Name, name: name, neighbour: p.Neighbour,
			Comparison: stats.Comparison{Ratio: *r, Floor: floor}, judge: judge, moreLoad: moreLoad}
	}
	percentiles := func(prefix string, list, base []Percentile) (out []*ratioAt) {
		for i := range list {
			if c := &list[i]; c.Ratio != nil {
				x := at(prefix+PercentileText(c.P), c.Ratio, c.Floor,
					func(d stats.Difference, n int) { c.Difference, c.ToTell = &d, n })
				if e := base[i].Estimate; e != nil {
					x.change = (c.Ratio.Estimate - 1) * float64(e.Value)
				}
				out = append(out, x)
			}
		}
		return out
	}
	var base *VariantSummary
	for i := range p.Variants {
		if p.Variants[i].Name == p.Base {
			base = &p.Variants[i]
		}
	}
	if base == nil {
		return nil, nil
	}
	first = percentiles("", v.Percentiles, base.Percentiles)
	for _, x := range first {
		x.inHost = true
	}
	for i := range v.Live.Measures {
		if m := &v.Live.Measures[i]; m.Ratio != nil {
			first = append(first, at(m.Name, &m.Ratio.Ratio, nil,
				func(d stats.Difference, n int) { m.Ratio.Difference, m.ToTell = d, n }))
		}
	}
	for _, x := range v.Live.Waits {
		of := make([]Percentile, len(x.Percentiles))
		for i := range of {
			of[i] = base.Live.Wait(x.Stage, i)
		}
		if x.Stage == RoundTrip {
			first = append(first, percentiles(x.Stage+" ", x.Percentiles, of)...)
			continue
		}
		waits = append(waits, percentiles(x.Stage+" ", x.Percentiles, of)...)
	}
	return first, waits
}

// outweighed divides the ratios that are worse. Clients that wait for answers send more requests when these
// come sooner. Then the host has more of them at once, and each can take longer in it. The clients see the
// sum, so a longer time in the host at more load is no harm as long as the median round trip is shorter by
// more.
func outweighed(better, worse []*ratioAt) (harm, longer []*ratioAt) {
	for _, x := range worse {
		if x.inHost && x.moreLoad && x.change > 0 && slices.ContainsFunc(better, func(b *ratioAt) bool {
			return b.service == x.service && b.name == RoundTrip+" P50" && x.change < -b.change
		}) {
			longer = append(longer, x)
		} else {
			harm = append(harm, x)
		}
	}
	return harm, longer
}

// mostToTell is the largest number of repeats that is stated.
const mostToTell = 10_000

// judgeAll judges a family of ratios. If it must not be judged, all are Same.
func judgeAll(all []*ratioAt, judged bool) {
	var members []stats.Comparison
	for _, x := range all {
		members = append(members, x.Comparison)
	}
	for i, d := range stats.Compare(members) {
		if !judged && d.Text != stats.Same {
			d = stats.Difference{Text: stats.Same, Reason: "no whole time, processor time or loss differs, so single " +
				"waits are not judged"}
		}
		n := 0
		if d.Text == stats.Same {
			n = stats.PairsToTell(members[i].Ratio, len(members))
		}
		// A bootstrap cannot state a small chance, so fewer repeats may seem to be enough.
		if n <= members[i].Ratio.N || n > mostToTell {
			n = 0
		}
		all[i].text = d.Text
		all[i].judge(d, n)
	}
}

// shownReasons is the number of ratios of one direction that a verdict names.
const shownReasons = 4

// verdict concludes what to do with a variant.
func (r *Result) verdict(variant string, points []PointSummary, first, waits []*ratioAt, comparisons int) TrialVerdict {
	v := TrialVerdict{Variant: variant}
	better, worse := split2(first)
	worse, longer := outweighed(better, worse)
	shorter, _ := split2(waits)
	name := func(verb string, list []*ratioAt) {
		for i, x := range list {
			if i == shownReasons {
				v.Reasons = append(v.Reasons, fmt.Sprintf("and %d more are %s", len(list)-i, verb))
				return
			}
			v.Reasons = append(v.Reasons, fmt.Sprintf("%s: %s", verb, x))
		}
	}
	switch {
	case len(better) > 0 && len(worse) == 0:
		v.Outcome = Keep
	case len(better) > 0:
		v.Outcome = Weigh
	case len(worse) > 0:
		v.Outcome = DoNotKeep
	default:
		v.nothing(r.Trial.Worth, points, first, comparisons)
	}
	name("better", better)
	name("worse", worse)
	name("longer at more load, and the round trip is shorter by more", longer)
	for i, x := range shorter {
		if i == 2 {
			break
		}
		v.Reasons = append(v.Reasons, "shorter wait: "+x.String())
	}
	return v
}

// split2 returns the ratios below 1 and those above 1, of those that noise does not explain. The most
// telling come first.
func split2(all []*ratioAt) (below, above []*ratioAt) {
	for _, x := range all {
		switch {
		case !x.told():
		case x.Ratio.Estimate < 1:
			below = append(below, x)
		default:
			above = append(above, x)
		}
	}
	for _, list := range [][]*ratioAt{below, above} {
		slices.SortStableFunc(list, func(a, b *ratioAt) int {
			return int(math.Copysign(1, math.Abs(math.Log(b.Ratio.Estimate))-math.Abs(math.Log(a.Ratio.Estimate))))
		})
	}
	return below, above
}

// nothing concludes from ratios that noise may all explain. If the intervals of P50 and P99 of all
// services in lanes rule out a gain that matters, the answer is no.
func (v *TrialVerdict) nothing(worth int, points []PointSummary, first []*ratioAt, comparisons int) {
	v.Outcome = DoNotKeep
	smallest := 1 / (1 + float64(worth)/1000)
	var lines []string
	rounds, seen := 0, false
	for _, p := range points {
		var parts []string
		for _, x := range first {
			if x.service != p.Name || x.neighbour || x.name != "P50" && x.name != "P99" {
				continue
			}
			seen, rounds = true, max(rounds, x.Ratio.N)
			parts = append(parts, x.name+" "+ratioText(x.Ratio, nil))
			if x.Ratio.Low <= smallest {
				v.Outcome = CannotTell
				v.Windows = max(v.Windows, stats.PairsToTell(
					stats.Ratio{Estimate: smallest, SpreadLog: x.Ratio.SpreadLog}, comparisons))
			}
		}
		if len(parts) > 0 {
			lines = append(lines, p.Name+": "+strings.Join(parts, ", "))
		}
	}
	need := stats.PairsFor(comparisons)
	switch {
	case !seen:
		v.Outcome = CannotTell
		v.Reasons = append(v.Reasons, "no service in a lane has enough windows or requests for an interval of P50 or "+
			"P99")
	case rounds < need:
		v.Outcome, v.Windows = CannotTell, max(v.Windows, need)
		v.Reasons = append(v.Reasons, fmt.Sprintf("%d pairs of windows cannot tell any of %d comparisons from chance, "+
			"however large the difference; %d can", rounds, comparisons, need))
		return // the intervals say nothing yet
	case v.Outcome == DoNotKeep:
		v.Windows = 0
		v.Reasons = append(v.Reasons, fmt.Sprintf("no difference, and a gain of %.3g %% or more is ruled out",
			float64(worth)/10))
	default:
		v.Reasons = append(v.Reasons, "noise may explain all differences", fmt.Sprintf("about %d windows of each "+
			"variant would tell a gain of %.3g %%; this trial had %d pairs", v.Windows, float64(worth)/10, rounds))
	}
	v.Reasons = append(v.Reasons, lines...)
}

// choose sets the best of the variants to keep, by the mean ratio of P99 of the services in lanes.
func (s *TrialSummary) choose(r *Result, first []*ratioAt) {
	mean := map[string]float64{}
	var kept []string
	for _, v := range s.Verdicts {
		if v.Outcome != Keep {
			continue
		}
		kept = append(kept, v.Variant)
		n := 0.0
		for _, x := range first {
			if x.variant == v.Variant && x.name == "P99" && !x.neighbour {
				mean[v.Variant] += math.Log(x.Ratio.Estimate)
				n++
			}
		}
		mean[v.Variant] /= max(n, 1)
	}
	if len(kept) == 0 {
		return
	}
	slices.SortStableFunc(kept, func(a, b string) int { return int(math.Copysign(1, mean[a]-mean[b])) })
	s.Best = kept[0]
	if len(kept) == 1 {
		return
	}
	var parts []string
	for i, p := range r.Points {
		if p.Neighbour {
			continue
		}
		a, b, _ := r.Trial.even(r.windows(i, kept[0]), r.windows(i, kept[1]))
		if ratio, _, err := latencyRatio(a, b, 99, toLastByte); err == nil {
			d := stats.Compare([]stats.Comparison{{Ratio: ratio}})[0]
			parts = append(parts, fmt.Sprintf("%s: P99 %s", p.Name(), ratioText(ratio, &d)))
		}
	}
	if len(parts) > 0 {
		s.BestText = fmt.Sprintf("%s beside %s: %s", kept[0], kept[1], strings.Join(parts, "; "))
	}
}

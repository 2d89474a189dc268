// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/niclane/niclane/bench/stats"
)

// WriteText writes a summary for a terminal: a table for each load point, with a column for each
// variant. The warnings follow the table.
func WriteText(out io.Writer, s *Summary) error {
	var b strings.Builder
	fmt.Fprintln(&b, s.Title)
	if s.Virtual {
		fmt.Fprintln(&b, VirtualText)
	}
	if s.Partial != nil {
		fmt.Fprintf(&b, "PARTIAL: ended in phase %s: %s\n", s.Partial.Phase, s.Partial.Reason)
	}
	s.Trial.text(&b)
	for _, p := range s.Points {
		b.WriteByte('\n')
		if p.Mode == Live {
			p.liveText(&b, s.Percentiles)
			continue
		}
		p.text(&b, s.Percentiles)
	}
	if lines := s.slaLines(); len(lines) > 0 {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(lines, "\n"))
	}
	for _, x := range s.Searches {
		b.WriteByte('\n')
		x.text(&b)
	}
	if len(s.Sweep) > 0 {
		b.WriteByte('\n')
		sweepText(&b, s.Sweep)
	}
	if len(s.Warnings) > 0 {
		b.WriteByte('\n')
		for _, w := range s.Warnings {
			fmt.Fprintf(&b, "warning: %s\n", w)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (p PointSummary) text(b *strings.Builder, percentiles []float64) {
	fmt.Fprintf(b, "%s, repeats: %d\n", p.Name, p.Rounds)
	if len(p.Variants) == 0 {
		fmt.Fprintln(b, "nothing measured")
		return
	}
	var rows [][]string
	row := func(name string, cell func(VariantSummary) string) {
		cells := []string{name}
		for _, v := range p.Variants {
			cells = append(cells, cell(v))
		}
		rows = append(rows, cells)
	}
	row("", func(v VariantSummary) string { return v.Name })
	row("mean", func(v VariantSummary) string { return DurationText(v.Mean) })
	for i, q := range percentiles {
		row(PercentileText(q), func(v VariantSummary) string { return v.Percentiles[i].text() })
		if len(p.Variants) > 1 {
			row("  to "+p.Base, func(v VariantSummary) string { return v.Percentiles[i].RatioText() })
		}
	}
	row("P99 - P50", func(v VariantSummary) string { return v.Jitter.Text() })
	row("requests", func(v VariantSummary) string { return fmt.Sprint(v.Requests) })
	if p.Rate > 0 {
		row("offered", func(v VariantSummary) string { return fmt.Sprintf("%.0f/s", v.Offered) })
	}
	row("achieved", func(v VariantSummary) string { return fmt.Sprintf("%.0f/s", v.Achieved) })
	row("errors", VariantSummary.Failures)
	if slices.ContainsFunc(p.Variants, func(v VariantSummary) bool { return v.NoiseToSUT+v.NoiseFromSUT > 0 }) {
		row("noise to SUT", func(v VariantSummary) string { return rateText(v.NoiseToSUT) })
		row("noise from SUT", func(v VariantSummary) string { return rateText(v.NoiseFromSUT) })
	}
	if slices.ContainsFunc(p.Variants, func(v VariantSummary) bool { return v.ServerCPU > 0 }) {
		row("server CPU", func(v VariantSummary) string { return DurationText(v.ServerCPU) + "/request" })
		if len(p.Variants) > 1 {
			row("  to "+p.Base, VariantSummary.serverCPURatio)
		}
	}
	inColumns(b, rows)
	if p.Stopped != "" {
		fmt.Fprintln(b, p.Stopped)
	}
	for _, line := range p.verdicts() {
		fmt.Fprintln(b, line)
	}
}

// verdicts returns a line for each goal and each doubt.
func (p PointSummary) verdicts() (lines []string) {
	for _, g := range p.Goals {
		if g.Judgement == nil {
			lines = append(lines, fmt.Sprintf("goal: %s: not judged: %s", g.Text, g.Missing))
			continue
		}
		lines = append(lines, fmt.Sprintf("goal: %s: %s: %s", g.Text, g.Judgement.Verdict, g.Judgement.Reason))
	}
	for _, d := range p.Doubts {
		lines = append(lines, "warning: "+d.String())
	}
	return lines
}

// rateText renders a rate; "-" for a rate of 0, because then there was no such traffic.
func rateText(v float64) string {
	if v == 0 {
		return "-"
	}
	return BitsText(v)
}

func (c Percentile) text() string {
	if c.Estimate == nil {
		return c.Missing
	}
	return IntervalText(*c.Estimate)
}

// IntervalText renders "84.2 µs (83.9 to 84.6)". The ends have their own units if these differ from
// the value's.
func IntervalText(e stats.Estimate) string {
	return fmt.Sprintf("%s (%s)", DurationText(float64(e.Value)), EndsText(e))
}

// EndsText renders only the interval: "83.9 to 84.6".
func EndsText(e stats.Estimate) string {
	units := []string{"ns", "µs", "ms", "s"}
	_, unit := scale(float64(e.Value), units)
	low, lowUnit := scale(float64(e.Low), units)
	high, highUnit := scale(float64(e.High), units)
	if lowUnit != unit || highUnit != unit {
		low, high = low+" "+lowUnit, high+" "+highUnit
	}
	return low + " to " + high
}

// RatioText renders "×1.23 (1.10 to 1.37)". It adds stats.Same if noise may explain the ratio. It
// returns "" for the base, and if the percentile itself is missing.
func (c Percentile) RatioText() string {
	if c.Ratio == nil {
		if strings.HasPrefix(c.RatioMissing, "needs ") || c.RatioMissing == "" {
			return "" // the line above says what is missing, or this is the base
		}
		return "no ratio"
	}
	if c.Ratio.High > 100*c.Ratio.Low { // the interval is so wide that its ends say nothing
		return stats.Same + " repeats differ too much"
	}
	return ratioText(*c.Ratio, c.Difference)
}

// serverCPURatio renders the ratio of the processor time to the base's, "" if there is none.
func (v VariantSummary) serverCPURatio() string {
	if v.ServerCPURatio == nil {
		return ""
	}
	return ratioText(*v.ServerCPURatio, nil)
}

// Failures renders the numbers of failures by kind; "0" if there are none.
func (v VariantSummary) Failures() string {
	if v.Errors+v.TimedOut+v.Unanswered+v.Misses == 0 {
		return "0"
	}
	var parts []string
	for _, x := range []struct {
		n    int64
		what string
	}{{v.Errors, "errors"}, {v.Misses, "misses"}, {v.TimedOut, "late"}, {v.Unanswered, "unanswered"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return strings.Join(parts, ", ")
}

func (s Search) text(b *strings.Builder) {
	r := s.Result
	goal := fmt.Sprintf("at least %.0f %% of the rate achieved", 100*s.Config.Goal.Achieved)
	if s.Config.Goal.Achieved < 0.01 {
		goal = "any rate achieved"
	}
	if s.Config.Goal.Limit > 0 {
		goal = fmt.Sprintf("%s ≤ %s, %s", PercentileText(s.Config.Goal.Percentile),
			DurationText(float64(s.Config.Goal.Limit)), goal)
	}
	fmt.Fprintf(b, "%s: highest rate with %s: ", s.Variant, goal)
	if r.Rate == 0 {
		fmt.Fprintf(b, "none found")
	} else {
		fmt.Fprintf(b, "%.0f/s", r.Rate)
		if r.Beyond > 0 {
			fmt.Fprintf(b, ", no longer at %.0f/s", r.Beyond)
		}
	}
	fmt.Fprintf(b, " (%d windows)\n", r.Windows)
	if r.Reason != "" {
		fmt.Fprintf(b, "  %s\n", r.Reason)
	}
	for _, l := range r.Levels {
		if l.Test == nil {
			continue
		}
		what := l.Test.Missing
		if e := l.Test.Estimate; e != nil {
			what = IntervalText(*e)
		}
		fmt.Fprintf(b, "  at %.0f %%, %.0f/s: %s\n", 100*l.Share, l.Test.Rate, what)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(b, "  warning: %s\n", w)
	}
}

func sweepText(b *strings.Builder, sweep []SweepSummary) {
	fmt.Fprintln(b, "sweep, one window each")
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "noise\tbuffer\tvariant\tP50\tP99\tnoise achieved")
	for _, s := range sweep {
		fmt.Fprintf(t, "%.3g %%\t%d KiB\t%s\t%s\t%s\t%s\n", float64(s.Sweep.Noise)/10, s.SwitchBuffer>>10, s.Variant,
			at(s.Percentiles, 50).text(), at(s.Percentiles, 99).text(), rateText(s.Achieved))
	}
	_ = t.Flush()
}

// at returns percentile p of list.
func at(list []Percentile, p float64) Percentile {
	for _, c := range list {
		if c.P == p {
			return c
		}
	}
	return Percentile{P: p}
}

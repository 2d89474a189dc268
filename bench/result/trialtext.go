// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/stats"
)

// Lines renders a verdict and its reasons, one line each.
func (v TrialVerdict) Lines() []string {
	out := []string{v.String()}
	for _, reason := range v.Reasons {
		out = append(out, "  "+reason)
	}
	return out
}

// text writes the verdicts of a trial.
func (s *TrialSummary) text(b *strings.Builder) {
	if s == nil {
		return
	}
	for _, v := range s.Verdicts {
		fmt.Fprintln(b, strings.Join(v.Lines(), "\n"))
	}
	if s.BestText != "" {
		fmt.Fprintln(b, "best: "+s.BestText)
	}
}

// liveText writes a service of a trial: a table with a column for each variant.
func (p PointSummary) liveText(b *strings.Builder, percentiles []float64) {
	fmt.Fprintf(b, "%s, windows of each variant: %d\n", p.Name, p.Rounds)
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
	both := func(name string, of func(VariantSummary) Percentile) {
		row(name, func(v VariantSummary) string { return of(v).text() })
		row("  to "+p.Base, func(v VariantSummary) string { return of(v).trialText() })
	}
	row("", func(v VariantSummary) string { return v.Name })
	row("mean", func(v VariantSummary) string { return DurationText(v.Mean) })
	for i, q := range percentiles {
		both(PercentileText(q), func(v VariantSummary) Percentile { return v.Percentiles[i] })
	}
	row("requests", func(v VariantSummary) string { return fmt.Sprint(v.Requests) })
	row("load", func(v VariantSummary) string { return fmt.Sprintf("%.0f/s", v.Achieved) })
	row("  to "+p.Base, func(v VariantSummary) string { return v.Live.Load.text(0) })
	for i, m := range p.Variants[0].Live.Measures {
		row(m.Label(), func(v VariantSummary) string { return v.Live.Measures[i].Text() })
		row("  to "+p.Base, func(v VariantSummary) string {
			return v.Live.Measures[i].Ratio.text(v.Live.Measures[i].ToTell)
		})
	}
	for _, x := range p.Variants[0].Live.Waits {
		for j, c := range x.Percentiles {
			both(x.Stage+" "+PercentileText(c.P), func(v VariantSummary) Percentile { return v.Live.Wait(x.Stage, j) })
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

// Wait returns the percentile with this index of a stage.
func (l *LiveSummary) Wait(stage string, index int) Percentile {
	for _, x := range l.Waits {
		if x.Stage == stage {
			return x.Percentiles[index]
		}
	}
	return Percentile{Missing: "not measured"}
}

// trialText renders the ratio of a percentile, and how many windows would tell it.
func (c Percentile) trialText() string { return withToTell(c.RatioText(), c.ToTell) }

func withToTell(text string, n int) string {
	if n == 0 || !strings.HasSuffix(text, stats.Same) {
		return text
	}
	return fmt.Sprintf("%s (%d would tell)", text, n)
}

// text renders a ratio and how many windows would tell it, "" for none.
func (j *Judged) text(toTell int) string {
	if j == nil {
		return ""
	}
	return withToTell(ratioText(j.Ratio, &j.Difference), toTell)
}

// Label returns the name of a measure, with its unit if the value's text has none.
func (m Measure) Label() string {
	if m.Unit == PerMillion {
		return m.Name + ", " + m.Unit
	}
	return m.Name
}

// Text renders the value of a measure.
func (m Measure) Text() string {
	if m.Missing != "" && m.V == 0 && m.Unit == PerRequestNs {
		return m.Missing
	}
	return Use{Unit: m.Unit}.text(m.V)
}

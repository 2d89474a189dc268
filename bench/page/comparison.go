// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// A comparisonView is the template's input for two runs.
type comparisonView struct {
	*result.Comparison
	CSS template.CSS
	// Niclane is the version that measured both runs; "" if the versions differ.
	Niclane  string
	Title    string
	Keys     []key
	Headline []string
	Lead     []string // statements that are true for both runs
	Runs     []runView
	Changes  []changes
	Lines    []template.HTML
	Points   []comparedPoint
}

// A runView is one of the two runs.
type runView struct {
	Letter, Title string
	Lead          []string // statements that are true for this run only
	Virtual       bool
	Partial       *result.Partial
	Warnings      []string
	Doubts        []doubt
}

// changes are the differences between the runs in one part of the settings.
type changes struct {
	Name string
	List []result.Change
}

// A comparedPoint is a load point that both runs have.
type comparedPoint struct {
	Name         string
	Ratios       *figure
	Distribution *figure
	Variants     []comparedVariant
}

type comparedVariant struct {
	Key  key
	Rows []comparedRow
}

// A comparedRow is a line of the table at a load point.
type comparedRow struct {
	What, A, EndsA, B, EndsB string
	RefusedA, RefusedB       string // reasons, shown instead of A and B
	Ratio, Beside            comparedRatio
}

type comparedRatio struct {
	Text, Ends, Why string
	Same            bool
}

// A namedRatio is a ratio with the head of its column.
type namedRatio struct {
	Name string
	comparedRatio
}

// WriteComparison writes the page of two runs, a and b, compared by result.Compare.
func WriteComparison(w io.Writer, c *result.Comparison, a, b *result.Result) error {
	v := &comparisonView{Comparison: c, CSS: CSS(), Keys: sharedKeys(a, b), Title: b.Title + ", two runs"}
	if a.Title != b.Title {
		v.Title = a.Title + " and " + b.Title
	}
	if a.Niclane == b.Niclane {
		v.Niclane = a.Niclane
	}
	x, y := c.Summaries()
	v.Runs = []runView{run("A", a, x), run("B", b, y)}
	v.share()
	v.Headline = v.headline(b)
	v.Changes = []changes{{"environment", c.Environment}, {"experiment", c.Experiment}}
	v.Lines = v.percentileLines(x, y)
	for _, p := range c.Points {
		v.Points = append(v.Points, comparedPoint{Name: p.Name, Ratios: v.ratios(p),
			Distribution: v.distribution(p, x, y), Variants: v.variants(p)})
	}
	t, err := Head()
	if err == nil {
		t, err = t.New("comparison.html").Parse(asset("comparison.html"))
	}
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return t.Execute(w, v)
}

// sharedKeys returns the keys of the variants that both runs have. They look as on the page of b
// alone.
func sharedKeys(a, b *result.Result) []key {
	return slices.DeleteFunc(keys(b), func(k key) bool {
		return !slices.ContainsFunc(a.Variants, func(v result.Variant) bool { return v.Name == k.Name })
	})
}

func run(letter string, r *result.Result, s *result.Summary) runView {
	v := &view{Result: r, Summary: s}
	out := runView{Letter: letter, Title: r.Title, Lead: append(v.lead(), "niclane "+r.Niclane), Virtual: r.Virtual,
		Partial:  r.Partial,
		Warnings: r.Warnings}
	for _, d := range s.Doubts {
		out.Doubts = append(out.Doubts, v.Doubt(d))
	}
	return out
}

// share moves the statements that are true for both runs from the runs to the page.
func (v *comparisonView) share() {
	a, b := &v.Runs[0], &v.Runs[1]
	for _, line := range a.Lead {
		if slices.Contains(b.Lead, line) {
			v.Lead = append(v.Lead, line)
		}
	}
	for _, r := range []*runView{a, b} {
		r.Lead = slices.DeleteFunc(r.Lead, func(line string) bool { return slices.Contains(v.Lead, line) })
	}
}

// headline returns the comparison in one sentence, at the highest load that both runs have. It is
// about the percentile that the experiment names. If a variant's sample cannot support this
// percentile, it takes the next lower one that all can support.
func (v *comparisonView) headline(b *result.Result) []string {
	if v.A.Partial != nil || v.B.Partial != nil {
		return nil
	}
	p := v.Comparison.Points[len(v.Comparison.Points)-1]
	most := named(b.Experiment)
	for i := len(p.Variants[0].Percentiles) - 1; i >= 0; i-- {
		at := p.Variants[0].Percentiles[i].P
		var parts, same []string
		for _, s := range p.Variants {
			k := slices.IndexFunc(s.Percentiles, func(t result.TwoOf) bool { return t.P == at })
			if at > most || k < 0 || s.Percentiles[k].Ratio == nil || !narrowed(s.Percentiles[k].Ratio.Ratio) {
				continue
			}
			r := s.Percentiles[k].Ratio
			parts = append(parts, fmt.Sprintf("%s ×%s (%s to %s)", s.Name, times(r.Estimate), times(r.Low),
				times(r.High)))
			if r.Difference.Text == stats.Same {
				same = append(same, s.Name)
			}
		}
		if len(parts) == len(p.Variants) {
			return []string{fmt.Sprintf("At %s, %s of B beside that of A: %s%s.", grouped(p.Name),
				result.PercentileText(at), strings.Join(parts, ", "), sameText(same))}
		}
	}
	return nil
}

// ratios draws, for a load point, the ratios of run B to run A.
func (v *comparisonView) ratios(p result.PointComparison) *figure {
	var rows []ratioRow
	for _, s := range p.Variants {
		for _, t := range s.Percentiles {
			if t.Ratio == nil || !narrowed(t.Ratio.Ratio) {
				continue // too wide to draw; the table has this ratio
			}
			rows = append(rows, ratioRow{name: s.Name + " " + result.PercentileText(t.P), text: t.Ratio.String(),
				key:   keyOf(v.Keys, s.Name),
				ratio: t.Ratio.Ratio, same: t.Ratio.Difference.Text == stats.Same})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return ratioFigure(rows, "Ratios of B to A", "B over A: to the left of the line B is faster.")
}

// pointOf returns a load point of a summary by its name.
func pointOf(s *result.Summary, name string) result.PointSummary {
	for _, p := range s.Points {
		if p.Name == name {
			return p
		}
	}
	return result.PointSummary{}
}

// variantOf returns a variant of a load point by its name.
func variantOf(p result.PointSummary, name string) result.VariantSummary {
	for _, s := range p.Variants {
		if s.Name == name {
			return s
		}
	}
	return result.VariantSummary{}
}

// distribution draws the latency distributions of both runs at a load point. Lines of run A are
// dashed.
func (v *comparisonView) distribution(p result.PointComparison, a, b *result.Summary) *figure {
	x, y := pointOf(a, p.Name), pointOf(b, p.Name)
	var curves []curve
	for _, s := range p.Variants {
		class := keyOf(v.Keys, s.Name).Class
		curves = append(curves, curve{class, "dashed", s.Name + " of A", variantOf(x, s.Name).Curve},
			curve{class, "stroke bold", s.Name + " of B", variantOf(y, s.Name).Curve})
	}
	return distributions(curves, nil, "Latency up to each percentile: A dashed, B solid. "+
		"A curve ends where fewer than ten samples lie beyond it.")
}

// percentileLines draws a panel for each percentile. Its horizontal axis is the load points that
// both runs have.
func (v *comparisonView) percentileLines(a, b *result.Summary) (out []template.HTML) {
	if len(v.Comparison.Points) < 2 {
		return nil
	}
	var points []result.PointSummary
	for _, p := range v.Comparison.Points {
		points = append(points, pointOf(b, p.Name))
	}
	name, x := loadAxis(points)
	var slas []experiment.SLA // those of both runs
	for _, s := range b.SLAs {
		if slices.ContainsFunc(a.SLAs, func(o result.SLASummary) bool { return o.SLA == s.SLA }) {
			slas = append(slas, s.SLA)
		}
	}
	for _, at := range b.Percentiles {
		panel := linesPanel{title: result.PercentileText(at), xName: name, text: tickText, limits: limitsOf(slas, at)}
		for _, k := range v.Keys {
			before, after := lineSeries{key: k, hollow: true}, lineSeries{key: k}
			before.key.Name, after.key.Name = k.Name+" of A", k.Name+" of B"
			for i, p := range v.Comparison.Points {
				for _, s := range p.Variants {
					for _, t := range s.Percentiles {
						if s.Name == k.Name && t.P == at {
							load := x(points[i])
							before.points = append(before.points,
								estimatePoint(load, result.Percentile{Estimate: t.A, Missing: t.MissingA}))
							after.points = append(after.points,
								estimatePoint(load, result.Percentile{Estimate: t.B, Missing: t.MissingB}))
						}
					}
				}
			}
			panel.series = append(panel.series, before, after)
		}
		if panel.any() {
			out = append(out, panel.draw())
		}
	}
	return out
}

func (v *comparisonView) variants(p result.PointComparison) (out []comparedVariant) {
	for _, s := range p.Variants {
		x := comparedVariant{Key: keyOf(v.Keys, s.Name)}
		for _, t := range s.Percentiles {
			r := comparedRow{What: result.PercentileText(t.P), RefusedA: grouped(t.MissingA),
				RefusedB: grouped(t.MissingB), Ratio: judged(t.Ratio), Beside: judged(t.BesideBase)}
			if t.A != nil {
				r.A, r.EndsA = result.DurationText(float64(t.A.Value)), result.EndsText(*t.A)
			}
			if t.B != nil {
				r.B, r.EndsB = result.DurationText(float64(t.B.Value)), result.EndsText(*t.B)
			}
			x.Rows = append(x.Rows, r)
		}
		x.Rows = append(x.Rows, comparedRow{What: "achieved", A: number(s.Achieved.A) + "/s",
			B: number(s.Achieved.B) + "/s", Ratio: judged(s.Achieved.Ratio)})
		if t := s.ServerCPU; t != nil {
			x.Rows = append(x.Rows, comparedRow{What: "server CPU a request", A: result.DurationText(t.A),
				B: result.DurationText(t.B), Ratio: judged(t.Ratio)})
		}
		for _, n := range s.Noise {
			x.Rows = append(x.Rows, comparedRow{What: "noise " + result.Way(n.Direction), A: result.BitsText(n.A),
				B: result.BitsText(n.B), Ratio: judged(n.Ratio)})
		}
		out = append(out, x)
	}
	return out
}

func judged(j *result.Judged) comparedRatio {
	if j == nil {
		return comparedRatio{Text: "-"}
	}
	r := comparedRatio{Text: "×" + times(j.Estimate), Ends: times(j.Low) + " to " + times(j.High),
		Why: j.Difference.Reason, Same: j.Difference.Text == stats.Same}
	if !narrowed(j.Ratio) {
		return comparedRatio{Text: stats.Same, Why: "its interval is " + r.Ends, Same: true}
	}
	if r.Same {
		r.Text += " " + stats.Same
	}
	return r
}

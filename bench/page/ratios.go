// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"math"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// ratios draws each variant's ratio to the base with its interval, and the pairs of windows from
// which it is computed.
func (v *view) ratios(p result.PointSummary) *figure {
	rows := v.ratioRows(p)
	if len(rows) == 0 {
		return nil
	}
	return ratioFigure(rows, "Ratios to "+p.Base, "Ratio to "+p.Base+". Dots: one pair of neighbouring repeats each.")
}

// ratioFigure draws the rows. It needs at least one.
func ratioFigure(rows []ratioRow, label, caption string) *figure {
	caption += " Bar: 95 % interval (" + rows[0].ratio.Method + "). Pale: ~, noise may explain it."
	return inTwoSizes("ratios", caption, func(w float64) template.HTML {
		return drawRatios(rows, label+" with their 95 % intervals; the values stand in the table", w)
	})
}

// A ratioRow is one ratio in the figure.
type ratioRow struct {
	name, text string
	key        key
	ratio      stats.Ratio
	same       bool // noise may explain it
	pairs      []result.PairRatio
	goal       float64 // 0: none
}

func (v *view) ratioRows(p result.PointSummary) (rows []ratioRow) {
	for _, s := range p.Variants {
		for i, c := range s.Percentiles {
			if c.Ratio == nil || !narrowed(*c.Ratio) {
				continue // too wide to draw; the table has this ratio
			}
			r := ratioRow{name: s.Name + " " + result.PercentileText(c.P), text: c.RatioText(),
				key: keyOf(v.Keys, s.Name), ratio: *c.Ratio,
				same: c.Difference != nil && c.Difference.Text == stats.Same, goal: v.goalOf(s.Name, p.Base, c.P)}
			if i < len(s.Pairs) {
				r.pairs = s.Pairs[i]
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// narrowed reports whether a ratio's interval is narrow enough to be useful.
func narrowed(r stats.Ratio) bool { return r.High <= 100*r.Low }

// drawRatios draws one line per row.
func drawRatios(rows []ratioRow, label string, w float64) template.HTML {
	values, left := []float64{1}, 0.0
	for _, r := range rows {
		values = append(values, r.ratio.Estimate, r.ratio.Low, r.ratio.High, r.goal)
		for _, q := range r.pairs {
			values = append(values, q.Ratio)
		}
		left = max(left, widthOf(r.name))
	}
	low, high := ends(values)
	left = min(left+14, w*0.4)
	const each, top = 26.0, 20.0
	bottom := top + each*float64(len(rows))
	d := newDrawing(w, bottom+26, label)
	x := axis{scale: logScale(max(low, 1e-3), min(high, 1e4), left, w-10), text: ratioText}
	parts := [][]float64{{1, 1.1, 1.2, 1.35, 1.5, 1.75}, {1, 1.25, 1.5, 1.75}, {1, 1.5}, {1}}
	x.ticks = x.logTicks(int(w/70), 2, parts...)
	d.columns(x, top-6, bottom)
	d.labels(x, bottom+17)
	d.line("one", x.at(1), top-6, x.at(1), bottom)
	goalNamed := false
	for i, r := range rows {
		y := top + each*(float64(i)+0.5)
		class := r.key.Class
		if r.same {
			class += " faint"
		}
		d.text("label", end, left-12, y+4, r.name)
		d.group(class, "", func() {
			for j, q := range r.pairs {
				shift := 0.0
				if n := len(r.pairs); n > 1 {
					shift = (float64(j)/float64(n-1) - 0.5) * 12
				}
				d.group("pair", fmt.Sprintf("%s, repeat %d: ×%s", r.name, q.Repeat, times(q.Ratio)), func() {
					d.marker(0, x.at(x.inside(q.Ratio)), y+shift, 2.6)
				})
			}
		})
		ratio := r.ratio
		title := fmt.Sprintf("%s: %s", r.name, r.text)
		d.group(class, title, func() {
			d.rect("interval", x.at(x.inside(ratio.Low)), y-2.5,
				max(2, x.at(x.inside(ratio.High))-x.at(x.inside(ratio.Low))), 5)
			d.marker(2, x.at(x.inside(ratio.Estimate)), y, 4.4)
		})
		if r.goal > 0 {
			d.group("goal", fmt.Sprintf("goal for %s: ×%s", r.name, times(r.goal)), func() {
				d.line("goal-line", x.at(r.goal), y-each/2+3, x.at(r.goal), y+each/2-3)
			})
			if !goalNamed {
				d.text("goal-text", middle, x.at(r.goal), top-8, "goal ×"+trimmed(times(r.goal)))
				goalNamed = true
			}
		}
	}
	return d.html()
}

// goalOf returns the ratio that the goal of a percentile allows; 0 if there is no goal.
func (v *view) goalOf(variant, base string, p float64) float64 {
	for _, g := range v.Experiment.Goals {
		if g.Measure == experiment.MeasureLatency && g.Variant == variant && g.Base == base && g.Percentile == p {
			return max(g.AtMost, g.AtLeast)
		}
	}
	return 0
}

// ratioText returns the label of a ratio on an axis: "×4", "×1/4".
func ratioText(v float64) string {
	if part := 1 / v; v < 1 && math.Abs(part-math.Round(part)) < 1e-6 {
		return "×1/" + trimmed(times(math.Round(part)))
	}
	return "×" + trimmed(times(v))
}

// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"math"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// nines returns a percentile's position on an axis on which P90, P99 and P99.9 have equal
// distances: 10, 100 and 1000.
func nines(p float64) float64 { return 1 / (1 - p/100) }

// distribution draws the latency at each percentile, up to the highest that the samples can
// support. It also draws the delay that the host itself causes (the floor).
func (v *view) distribution(p result.PointSummary) *figure {
	var curves []curve
	for _, s := range p.Variants {
		curves = append(curves, curve{keyOf(v.Keys, s.Name).Class, "stroke bold", s.Name, s.Curve})
	}
	caption := "Latency up to each percentile. A curve ends where fewer than ten samples lie beyond it."
	if len(v.Summary.Floor) > 0 {
		caption += " Dashed: how late the slowest processor woke a thread that only slept, with nothing of niclane " +
			"running. Latencies near this line or below it are the host's."
	}
	return distributions(curves, worstFloor(v.Summary.Floor), caption) // the worst processor matters
}

// A curve is the distribution of one variant, with its colour and its style of line.
type curve struct {
	class, line, name string
	steps             []stats.Step
}

// distributions draws curves, and the floor as a dashed line. It returns nil if there is nothing to
// draw.
func distributions(curves []curve, floor []stats.Step, caption string) *figure {
	return inTwoSizes("distribution", caption, func(w float64) template.HTML {
		return drawDistribution(curves, floor, w)
	})
}

func drawDistribution(curves []curve, floor []stats.Step, w float64) template.HTML {
	h := 300.0
	if w == wide {
		h = 360
	}
	d := newDrawing(w, h, "Latency by percentile for each variant; the values stand in the table")
	var values []float64
	last := 0.0
	for _, s := range curves {
		for _, c := range s.steps {
			if c.Percentile >= 10 {
				values = append(values, float64(c.NS))
			}
			last = max(last, nines(c.Percentile))
		}
	}
	low, high := ends(values)
	if high == 0 {
		return ""
	}
	for _, c := range floor {
		if c.Percentile >= 50 && nines(c.Percentile) <= last && c.NS > 0 { // the floor may widen the scale
			low, high = min(low, max(float64(c.NS), low/4)), max(high, min(float64(c.NS), high*3))
		}
	}
	bottom := h - 26
	y := axisOf(logScale(low, high, bottom, 8), tickText, int(h/38))
	left := y.widest() + 10
	x := axis{scale: scale{1, last * 1.15, left, w - 8, true}, text: percentileOf, ticks: []float64{2}}
	for n := 10.0; n <= last*1.1; n *= 10 {
		x.ticks = append(x.ticks, n)
	}
	d.frame(x, y, 0)
	draw := func(class string, steps []stats.Step) {
		var points []point
		for _, c := range steps {
			if n, ns := nines(c.Percentile), float64(c.NS); ns >= y.low && ns <= y.high && n <= last*1.15 {
				points = append(points, point{x.at(n), y.at(ns)})
			}
		}
		d.path(class, points)
	}
	if len(floor) > 0 {
		d.group("floor", "the host's own noise floor", func() { draw("dashed", floor) })
	}
	for _, s := range curves {
		d.group(s.class, s.name, func() { draw(s.line, s.steps) })
	}
	return d.html()
}

// percentileOf returns the name of the percentile at a position of the axis: at 10 it is P90.
func percentileOf(n float64) string {
	p := 100 * (1 - 1/n)
	return result.PercentileText(math.Round(p*1e6) / 1e6)
}

// worstFloor returns the curve of the processor on which a sleeping thread woke up latest.
func worstFloor(all []result.Floor) []stats.Step {
	var worst []stats.Step
	late := int64(-1)
	for _, f := range all {
		if n := len(f.Curve); n > 0 && f.Curve[n-1].NS > late {
			worst, late = f.Curve, f.Curve[n-1].NS
		}
	}
	return worst
}

// exceed draws a histogram as in the papers: the share of requests slower than each threshold.
func (v *view) exceed(p result.PointSummary) *figure {
	if len(p.Thresholds) == 0 {
		return nil
	}
	c := barChart{label: "Share of requests slower than each threshold, by variant; the values stand in the table",
		text: tickShare, y: fromZero, name: "longer than"}
	for i, t := range p.Thresholds {
		g := barGroup{name: tickText(float64(t))}
		for _, s := range p.Variants {
			b := bar{key: keyOf(v.Keys, s.Name)}
			if i < len(s.Exceed) && s.Exceed[i].Missing == "" {
				e := s.Exceed[i]
				b.value = 1 - e.Within
				b.title = fmt.Sprintf("%s: %s of the requests took longer than %s (%s to %s)",
					s.Name, share(b.value), g.name, share(1-e.High), share(1-e.Low))
			}
			g.bars = append(g.bars, b)
		}
		c.groups = append(c.groups, g)
	}
	for _, s := range p.Variants {
		if b := s.Bucketed; b != nil { // the thresholds are multiples of the first threshold
			title := fmt.Sprintf("%s: bucketed mean %s", s.Name, result.DurationText(b.Mean))
			c.means = append(c.means, barMean{keyOf(v.Keys, s.Name), b.Mean/float64(p.Thresholds[0]) - 0.5, title})
		}
	}
	return inTwoSizes("exceed", "Share of the requests that took longer than each threshold. "+
		"Dashed: the mean that such a histogram gives, from the middle of each bucket and its share. "+
		"The table has the true mean beside it. A share of fewer than ten requests, "+
		"or of too few independent ones, has no bar.", c.draw)
}

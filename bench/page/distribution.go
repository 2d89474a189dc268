// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"math"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// nines is where a percentile stands on an axis that gives P90, P99, P99.9 the
// same distance.
func nines(p float64) float64 { return 1 / (1 - p/100) }

// distribution is the latency at each percentile, as far as the samples carry
// it, with the host's own floor.
func (v *view) distribution(p result.PointSummary) *figure {
	var curves []curve
	for _, s := range p.Variants {
		curves = append(curves, curve{keyOf(v.Keys, s.Name).Class, "stroke bold", s.Name, s.Curve})
	}
	f := distributions(curves, worstFloor(v.Summary.Floor)) // that of the worst processor matters
	if f == nil {
		return nil
	}
	f.Caption = "Latency up to each percentile. A curve ends where fewer than ten samples lie beyond it."
	if len(v.Summary.Floor) > 0 {
		f.Caption += " Dashed: how late the slowest processor woke a thread that only slept, with nothing of ours running; what lies near it or below is the host's."
	}
	return f
}

// A curve is a distribution, with its colour and how its line is drawn.
type curve struct {
	class, line, name string
	steps             []stats.Step
}

// distributions draws some, and the floor dashed; nil where there is nothing to
// draw.
func distributions(curves []curve, floor []stats.Step) *figure {
	f := &figure{ID: "distribution", Wide: drawDistribution(curves, floor, wide, 360), Narrow: drawDistribution(curves, floor, narrow, 300)}
	if f.Wide == "" {
		return nil
	}
	return f
}

func drawDistribution(curves []curve, floor []stats.Step, w, h float64) template.HTML {
	d := newDrawing(w, h, "Latency by percentile for each variant; the values stand in the table")
	var values []float64
	last := 0.0
	for _, s := range curves {
		for _, c := range s.steps {
			if c.Percentile >= 10 && c.NS > 0 {
				values = append(values, float64(c.NS))
			}
			last = max(last, nines(c.Percentile))
		}
	}
	if len(values) == 0 {
		return ""
	}
	low, high := minOf(values), maxOf(values)
	for _, c := range floor {
		if c.Percentile >= 50 && nines(c.Percentile) <= last && c.NS > 0 { // as far as it needs little room
			low, high = min(low, max(float64(c.NS), low/4)), max(high, min(float64(c.NS), high*3))
		}
	}
	bottom := h - 26
	y := axis{scale: logScale(low, high, bottom, 8), text: tickText}
	y.ticks = y.scale.ticks(int(h / 38))
	left := y.widest() + 10
	x := axis{scale: scale{1, last * 1.15, left, w - 8, true}, text: percentileOf, ticks: []float64{2}}
	for n := 10.0; n <= last*1.1; n *= 10 {
		x.ticks = append(x.ticks, n)
	}
	d.frame(x, y)
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

// percentileOf names the percentile at a place of the axis: 10 is P90.
func percentileOf(n float64) string {
	p := 100 * (1 - 1/n)
	return result.PercentileText(math.Round(p*1e6) / 1e6)
}

// worstFloor is the curve of the processor that woke latest.
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

// exceed is the papers' histogram: the share of requests slower than each
// threshold.
func (v *view) exceed(p result.PointSummary) *figure {
	if len(p.Thresholds) == 0 {
		return nil
	}
	f := &figure{ID: "exceed", Wide: v.drawExceed(p, wide), Narrow: v.drawExceed(p, narrow)}
	f.Caption = "Share of the requests that took longer than each threshold. Dashed: the mean that follows from such a histogram, each bucket's middle by the share in it; how far that is from the true mean stands in the table. A share of fewer than ten requests, or of too few independent ones, has no bar."
	return f
}

func (v *view) drawExceed(p result.PointSummary, w float64) template.HTML {
	const h, bottom, top = 270.0, 230.0, 12.0
	d := newDrawing(w, h, "Share of requests slower than each threshold, by variant; the values stand in the table")
	var shares []float64
	for _, s := range p.Variants {
		for _, e := range s.Exceed {
			shares = append(shares, 1-e.Within)
		}
	}
	y := axis{scale: fromZero(shares, bottom, top), text: func(v float64) string { return trimmed(share(v)) }}
	y.ticks = y.scale.ticks(6)
	left := y.widest() + 10
	n := len(p.Thresholds)
	step := float64(p.Thresholds[0])
	x := axis{scale: scale{0.5 * step, (float64(n) + 0.5) * step, left, w - 2, false}, text: tickText}
	for _, t := range p.Thresholds {
		x.ticks = append(x.ticks, float64(t))
	}
	for _, t := range y.ticks {
		d.line("grid", left, y.at(t), w, y.at(t))
		d.text("tick", end, left-7, y.at(t)+4, y.text(t))
	}
	each := (w - 2 - left) / float64(n)
	one := each * 0.8 / float64(max(1, len(p.Variants)))
	for j, s := range p.Variants {
		k := keyOf(v.Keys, s.Name)
		for i, e := range s.Exceed {
			if e.Missing != "" || e.Within >= 1 {
				continue
			}
			x0 := left + each*float64(i) + each*0.1 + one*float64(j)
			title := fmt.Sprintf("%s: %s of the requests took longer than %s (%s to %s)", s.Name, share(1-e.Within), tickText(float64(p.Thresholds[i])), share(1-e.High), share(1-e.Low))
			d.group(k.Class, title, func() { d.rect("bar", x0, y.at(1-e.Within), max(one-1, 1), bottom-y.at(1-e.Within)) })
		}
	}
	for _, s := range p.Variants {
		if b := s.Bucketed; b != nil && b.Mean < x.high && b.Mean > x.low {
			title := fmt.Sprintf("%s: bucketed mean %s", s.Name, result.DurationText(b.Mean))
			d.group(keyOf(v.Keys, s.Name).Class, title, func() { d.line("dashed", x.at(b.Mean), top, x.at(b.Mean), bottom) })
		}
	}
	free := left - 30.0
	for i, t := range x.ticks {
		at, text := left+each*(float64(i)+0.5), x.text(t)
		if half := widthOf(text) / 2; at-half > free && at+half < w+2 {
			d.text("tick", middle, at, bottom+17, text)
			free = at + half + 8
		}
	}
	d.line("axis", left, bottom, w, bottom)
	d.text("tick", middle, (left+w)/2, bottom+35, "longer than")
	return d.html()
}

// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"maps"
	"slices"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats/search"
)

// A linesPanel is a chart of one value over the load or a setting, with a line for each variant.
type linesPanel struct {
	title, xName string
	text         func(float64) string // renders a value
	xText        func(float64) string // renders a value of the horizontal axis; nil: short
	xLog         bool                 // the horizontal axis is logarithmic
	series       []lineSeries
	limits       []limit // those of the SLAs
}

type lineSeries struct {
	key    key
	hollow bool // dashed, with markers that are not filled
	points []linePoint
}

// class returns two classes of the style sheet: for the group of elements and for the line.
func (s lineSeries) class() (group, line string) {
	if s.hollow {
		return s.key.Class + " hollow", "dashed"
	}
	return s.key.Class, "stroke"
}

type linePoint struct {
	x, value, low, high float64
	missing             string   // shown instead of a value
	rings               []string // titles of the rings around the point
}

// any reports whether any point has a value to draw.
func (p linesPanel) any() bool {
	return slices.ContainsFunc(p.series, func(s lineSeries) bool {
		return slices.ContainsFunc(s.points, func(q linePoint) bool { return q.missing == "" })
	})
}

func (p linesPanel) draw() template.HTML {
	const top, bottom = 26.0, 190.0
	const right = panel - 16.0     // leaves room for the last label
	const strip, below = 15.0, 9.0 // a row of crosses per variant with refused points
	crosses := map[int]float64{}   // vertical position of each variant's row of crosses
	var values, xs []float64
	for i, s := range p.series {
		for _, q := range s.points {
			xs = append(xs, q.x)
			if q.missing == "" {
				values = append(values, q.value, q.low, q.high)
			} else if crosses[i] == 0 {
				crosses[i] = bottom + below + strip*(float64(len(crosses))+0.5)
			}
		}
	}
	limits := p.limits
	if len(values) == 0 {
		limits = nil
	}
	for _, l := range limits {
		values = append(values, l.at)
	}
	space := 0.0
	if n := len(crosses); n > 0 {
		space = below + strip*float64(n)
	}
	d := newDrawing(panel, 236+space, p.label())
	d.text("title", start, 0, 13, p.title)
	y := axisOf(scaleOf(values, bottom, top), p.text, 6)
	left := y.widest() + 10
	if len(crosses) > 0 {
		left = max(left, 52)
		d.text("tick small", end, left-7, bottom+below+strip/2+4, "refused")
	}
	lowX, highX := slices.Min(xs), slices.Max(xs)
	room := max((highX-lowX)*0.05, highX*0.01)
	x := axis{scale: scale{lowX - room, highX + room, left, right, false}, text: short, name: p.xName}
	if p.xLog {
		x.scale = logScale(lowX, highX, left, right)
	}
	if p.xText != nil {
		x.text = p.xText
	}
	x.ticks = distinct(xs)
	if len(x.ticks) > 5 && !p.xLog {
		x.ticks = x.scale.ticks(5)
	}
	d.frame(x, y, space)
	for _, l := range limits {
		d.line("limit", left, y.at(l.at), right, y.at(l.at))
	}
	if text := limitsText(limits); text != "" {
		// The limits' names are beside the title, where they hide no point.
		name := right - widthOf(text)
		d.line("limit", name-24, 9, name-4, 9)
		d.text("limit-text", end, right, 13, text)
	}
	for i, s := range p.series {
		// Variants are drawn side by side, so that their intervals do not hide each other.
		shift := (float64(i) - float64(len(p.series)-1)/2) * 4
		class, line := s.class()
		points := make([]point, len(s.points))
		for j, q := range s.points {
			points[j] = gap()
			if q.missing == "" {
				points[j] = point{x.at(q.x) + shift, y.at(q.value)}
			}
		}
		d.group(class, "", func() { d.path(line, points) })
		for j, q := range s.points {
			title := fmt.Sprintf("%s, %s: ", s.key.Name, p.at(q.x))
			if q.missing != "" {
				title += p.title + " refused: " + q.missing
				d.group(s.key.Class, title, func() { d.cross(x.at(q.x), crosses[i], 3.2) })
				continue
			}
			at := points[j].x
			title += p.text(q.value)
			if q.low != q.high {
				title += fmt.Sprintf(" (%s to %s)", p.text(q.low), p.text(q.high))
			}
			d.group(class, title, func() {
				if q.low != q.high {
					low, high := y.at(y.inside(q.low)), y.at(y.inside(q.high))
					d.line("whisker", at, low, at, high)
					d.line("whisker", at-3, low, at+3, low)
					d.line("whisker", at-3, high, at+3, high)
				}
				d.marker(s.key.shape, at, points[j].y, 3.4)
			})
			for _, ring := range q.rings {
				d.group(class, ring, func() { d.ring(at, points[j].y, 7.5) })
			}
		}
	}
	return d.html()
}

func (p linesPanel) at(x float64) string {
	if p.xText != nil {
		return p.xText(x)
	}
	if p.xName == connectionsName {
		return number(x) + " connections"
	}
	return number(x) + "/s"
}

func (p linesPanel) label() string {
	return fmt.Sprintf("%s over %s; the values stand in the table", p.title, p.xName)
}

func distinct(v []float64) []float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return slices.Compact(v)
}

// Names of the horizontal axis, the load.
const (
	connectionsName = "connections"
	rateName        = "requests per second asked for"
)

// loadAxis returns the name and the values of the load's axis: the rates if they differ between
// load points, else the numbers of connections.
func loadAxis(points []result.PointSummary) (string, func(result.PointSummary) float64) {
	for _, p := range points {
		if p.Rate != points[0].Rate || len(points) == 1 && p.Rate > 0 {
			return rateName, func(p result.PointSummary) float64 { return p.Rate }
		}
	}
	return connectionsName, func(p result.PointSummary) float64 { return float64(p.Connections) }
}

// percentileLines draws a panel for each percentile, and one for the achieved rate.
func (v *view) percentileLines() (out []template.HTML, refused []string) {
	points := v.Summary.Points
	if len(points) < 2 {
		return nil, nil
	}
	name, x := loadAxis(points)
	series := func(at func(x float64, s result.VariantSummary) linePoint,
		of func(i int, s result.SLASummary) bool) (out []lineSeries) {
		for _, k := range v.Keys {
			s := lineSeries{key: k}
			for i, p := range points {
				for _, variant := range p.Variants {
					if variant.Name == k.Name {
						q := at(x(p), variant)
						q.rings = v.rings(k.Name, i, of)
						s.points = append(s.points, q)
					}
				}
			}
			out = append(out, s)
		}
		return out
	}
	for i, p := range v.Summary.Percentiles {
		panel := linesPanel{title: result.PercentileText(p), xName: name, text: tickText,
			limits: limitsOf(v.Experiment.SLAs(), p)}
		panel.series = series(func(x float64, s result.VariantSummary) linePoint {
			return estimatePoint(x, s.Percentiles[i])
		}, func(_ int, s result.SLASummary) bool { return s.Percentile == p })
		if panel.any() {
			out = append(out, panel.draw())
		} else {
			refused = append(refused, panel.title)
		}
	}
	if points[0].Rate > 0 {
		return out, refused // achieved draws the achieved rate of an open loop
	}
	rate := linesPanel{title: "achieved, requests per second", xName: name, text: short}
	rate.series = series(func(x float64, s result.VariantSummary) linePoint { return exactPoint(x, s.Achieved) },
		func(i int, _ result.SLASummary) bool { return i == 0 })
	if rate.any() {
		out = append(out, rate.draw())
	}
	return out, refused
}

// exactPoint returns a point without an interval.
func exactPoint(x, value float64) linePoint {
	return linePoint{x: x, value: value, low: value, high: value}
}

func estimatePoint(x float64, c result.Percentile) linePoint {
	if c.Estimate == nil {
		return linePoint{x: x, missing: c.Missing}
	}
	return linePoint{x: x, value: float64(c.Estimate.Value), low: float64(c.Estimate.Low),
		high: float64(c.Estimate.High)}
}

// searchLines draws what the searches measured at each rate: the percentile of the goal, and the
// achieved rate.
func (v *view) searchLines() (out []template.HTML) {
	latency := linesPanel{xName: rateName, text: tickText}
	achieved := linesPanel{title: "achieved, share of what was asked for", xName: rateName, text: tickShare}
	rates := map[float64]bool{}
	for _, s := range v.Summary.Searches {
		a, l := lineSeries{key: keyOf(v.Keys, s.Variant)}, lineSeries{key: keyOf(v.Keys, s.Variant)}
		tests := map[float64]*search.Test{}
		for _, t := range s.Result.Tests {
			if t.Rate > 0 {
				tests[t.Rate] = t // if a rate was tested several times, the last test counts: it confirms the result
			}
		}
		for _, rate := range slices.Sorted(maps.Keys(tests)) {
			t := tests[rate]
			rates[rate] = true
			a.points = append(a.points, exactPoint(rate, t.Achieved/rate))
			c := result.Percentile{Estimate: t.Estimate, Missing: t.Missing}
			l.points = append(l.points, estimatePoint(rate, c))
		}
		if len(tests) == 0 {
			continue
		}
		achieved.series = append(achieved.series, a)
		if g := s.Config.Goal; g.Limit > 0 {
			latency.title = result.PercentileText(g.Percentile)
			latency.limits = []limit{{float64(g.Limit), tickText(float64(g.Limit))}}
			latency.series = append(latency.series, l)
		}
	}
	if len(rates) < 2 {
		return nil // no figure; the table has the values
	}
	if latency.any() {
		out = append(out, latency.draw())
	}
	return append(out, achieved.draw())
}

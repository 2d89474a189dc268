// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/niclane/niclane/bench/result"
)

// A linesPanel is one value of all variants over the load.
type linesPanel struct {
	title, xName string
	text         func(float64) string // of the values
	series       []lineSeries
	// limit is the SLA's, 0: none.
	limit     float64
	limitText string
}

type lineSeries struct {
	key    key
	hollow bool // dashed, with markers that are not filled
	points []linePoint
}

// class of the style sheet, and that of the line.
func (s lineSeries) class() (group, line string) {
	if s.hollow {
		return s.key.Class + " hollow", "dashed"
	}
	return s.key.Class, "stroke"
}

type linePoint struct {
	x, value, low, high float64
	missing             string // in the place of a value
}

// any says whether there is anything to draw.
func (p linesPanel) any() bool {
	return slices.ContainsFunc(p.series, func(s lineSeries) bool {
		return slices.ContainsFunc(s.points, func(q linePoint) bool { return q.missing == "" })
	})
}

func (p linesPanel) draw() template.HTML {
	refused := map[int]bool{}
	var values, xs []float64
	for i, s := range p.series {
		for _, q := range s.points {
			xs = append(xs, q.x)
			if q.missing != "" {
				refused[i] = true
				continue
			}
			values = append(values, q.value, q.low, q.high)
		}
	}
	if p.limit > 0 && len(values) > 0 {
		values = append(values, p.limit)
	}
	const right = panel - 16.0 // room for the last label
	const strip = 15.0         // for each variant with refused points
	height := 236 + strip*float64(len(refused))
	d := newDrawing(panel, height, p.label())
	d.text("title", start, 0, 13, p.title)
	plotBottom := 190.0
	y := axis{scale: scaleOf(values, plotBottom, 26), text: p.text}
	y.ticks = y.scale.ticks(6)
	left := y.widest() + 10
	if len(refused) > 0 {
		left = max(left, 52)
	}
	lowX, highX := slices.Min(xs), slices.Max(xs)
	room := max((highX-lowX)*0.05, highX*0.01)
	x := axis{scale: scale{lowX - room, highX + room, left, right, false}, text: short, ticks: distinct(xs)}
	if len(x.ticks) > 5 {
		x.ticks = x.scale.ticks(5)
	}
	stripTop := plotBottom
	if len(refused) > 0 { // between the plot and the labels below it
		stripTop += 3
		for i, s := range p.series {
			if !refused[i] {
				continue
			}
			at := stripTop + strip/2
			if stripTop == plotBottom+3 { // once
				d.text("tick small", end, left-7, at+4, "refused")
			}
			for _, q := range s.points {
				if q.missing != "" {
					d.group(s.key.Class, fmt.Sprintf("%s, %s: %s refused: %s", s.key.Name, p.at(q.x), p.title, q.missing), func() { d.cross(x.at(q.x), at, 3.2) })
				}
			}
			stripTop += strip
		}
	}
	for _, t := range y.ticks {
		d.line("grid", left, y.at(t), right, y.at(t))
		d.text("tick", end, left-7, y.at(t)+4, y.text(t))
	}
	free := -20.0
	for _, t := range x.ticks {
		at, half := x.at(t), widthOf(x.text(t))/2
		d.line("grid", at, 26, at, plotBottom)
		if at-half < free || at+half > panel {
			continue
		}
		d.text("tick", middle, at, stripTop+16, x.text(t))
		free = at + half + 5
	}
	d.line("axis", left, plotBottom, right, plotBottom)
	d.text("tick", middle, (left+right)/2, stripTop+34, p.xName)
	if p.limit > 0 && len(values) > 0 {
		at := y.at(p.limit)
		d.line("limit", left, at, right, at)
		above := at - 5
		if above < 36 {
			above = at + 14
		}
		d.text("limit-text", end, right-2, above, p.limitText)
	}
	for i, s := range p.series {
		// Side by side, so that intervals do not hide each other.
		shift := (float64(i) - float64(len(p.series)-1)/2) * 4
		class, line := s.class()
		d.group(class, "", func() {
			var stretch []point
			for _, q := range s.points {
				if q.missing != "" { // no line through what is not known
					d.path(line, stretch)
					stretch = nil
					continue
				}
				stretch = append(stretch, point{x.at(q.x) + shift, y.at(q.value)})
			}
			d.path(line, stretch)
		})
		for _, q := range s.points {
			if q.missing != "" {
				continue
			}
			at := x.at(q.x) + shift
			title := fmt.Sprintf("%s, %s: %s", s.key.Name, p.at(q.x), p.text(q.value))
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
				d.marker(s.key.shape, at, y.at(q.value), 3.4)
			})
		}
	}
	return d.html()
}

func (p linesPanel) at(x float64) string {
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

// Names of the load's axis.
const (
	connectionsName = "connections"
	rateName        = "requests per second asked for"
)

// loadAxis of load points: rates where they differ, else connections.
func loadAxis(points []result.PointSummary) (string, func(result.PointSummary) float64) {
	for _, p := range points {
		if p.Rate != points[0].Rate || len(points) == 1 && p.Rate > 0 {
			return rateName, func(p result.PointSummary) float64 { return p.Rate }
		}
	}
	return connectionsName, func(p result.PointSummary) float64 { return float64(p.Connections) }
}

// percentileLines are a panel for each percentile, and one for the rate that
// was achieved.
func (v *view) percentileLines() (out []template.HTML, refused []string) {
	points := v.Summary.Points
	if len(points) < 2 {
		return nil, nil
	}
	name, x := loadAxis(points)
	for i, p := range v.Summary.Percentiles {
		panel := linesPanel{title: result.PercentileText(p), xName: name, text: tickText}
		if sla := v.Experiment.SLA; sla != nil && sla.Percentile == p {
			panel.limit, panel.limitText = float64(sla.At), "SLA "+tickText(float64(sla.At))
		}
		for _, k := range v.Keys {
			s := lineSeries{key: k}
			for _, point := range points {
				for _, variant := range point.Variants {
					if variant.Name == k.Name {
						s.points = append(s.points, estimatePoint(x(point), variant.Percentiles[i]))
					}
				}
			}
			panel.series = append(panel.series, s)
		}
		if panel.any() {
			out = append(out, panel.draw())
		} else {
			refused = append(refused, panel.title)
		}
	}
	if points[0].Rate > 0 {
		return out, refused // what was achieved of it has a figure of its own
	}
	rate := linesPanel{title: "achieved, requests per second", xName: name, text: short}
	for _, k := range v.Keys {
		s := lineSeries{key: k}
		for _, point := range points {
			for _, variant := range point.Variants {
				if variant.Name == k.Name {
					a := variant.Achieved
					s.points = append(s.points, linePoint{x: x(point), value: a, low: a, high: a})
				}
			}
		}
		rate.series = append(rate.series, s)
	}
	if rate.any() {
		out = append(out, rate.draw())
	}
	return out, refused
}

func estimatePoint(x float64, c result.Percentile) linePoint {
	if c.Estimate == nil {
		return linePoint{x: x, missing: c.Missing}
	}
	return linePoint{x: x, value: float64(c.Estimate.Value), low: float64(c.Estimate.Low), high: float64(c.Estimate.High)}
}

// searchLines are what the searches measured on their way, over the rate: the
// percentile of the goal, and what was achieved.
func (v *view) searchLines() []template.HTML {
	var latency, achieved linesPanel
	latency = linesPanel{xName: rateName, text: tickText}
	achieved = linesPanel{title: "achieved, share of what was asked for", xName: rateName, text: func(v float64) string { return trimmed(share(v)) }}
	for _, s := range v.Summary.Searches {
		g := s.Config.Goal
		if g.Limit > 0 {
			latency.title = result.PercentileText(g.Percentile)
			latency.limit, latency.limitText = float64(g.Limit), "SLA "+tickText(float64(g.Limit))
		}
		a, l := lineSeries{key: keyOf(v.Keys, s.Variant)}, lineSeries{key: keyOf(v.Keys, s.Variant)}
		seen := map[float64]bool{}
		tests := slices.Clone(s.Result.Tests)
		slices.Reverse(tests) // of several at a rate the last counts: it confirmed
		for _, t := range tests {
			if seen[t.Rate] || t.Rate <= 0 {
				continue
			}
			seen[t.Rate] = true
			share := t.Achieved / t.Rate
			a.points = append(a.points, linePoint{x: t.Rate, value: share, low: share, high: share})
			l.points = append(l.points, estimatePoint(t.Rate, result.Percentile{Estimate: t.Estimate, Missing: t.Missing}))
		}
		byX := func(a, b linePoint) int { return int(math.Copysign(1, a.x-b.x)) }
		slices.SortFunc(a.points, byX)
		slices.SortFunc(l.points, byX)
		if len(a.points) > 0 {
			achieved.series = append(achieved.series, a)
		}
		if len(l.points) > 0 && g.Limit > 0 {
			latency.series = append(latency.series, l)
		}
	}
	rates := map[float64]bool{}
	for _, s := range achieved.series {
		for _, p := range s.points {
			rates[p.x] = true
		}
	}
	if len(rates) < 2 {
		return nil // the table says it
	}
	out := []template.HTML{achieved.draw()}
	if latency.any() {
		out = append([]template.HTML{latency.draw()}, out...)
	}
	return out
}

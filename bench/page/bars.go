// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// A barGroup has one bar for each variant.
type barGroup struct {
	name string
	bars []bar
}

type bar struct {
	key              key
	value, low, high float64 // value 0: no bar (refused or no data); low and high 0: no interval
	behind           float64 // the requested value, drawn as a second bar behind the first; 0: none
	title, minus     string  // minus: text above the bar that says how much is missing
	top              string  // text above the bar
	faint            bool    // noise may explain the value
}

// A barMean is a dashed line across a bar chart, at a variant's mean.
type barMean struct {
	key   key
	at    float64 // position on the axis of groups: 1.5 is the middle of the second group
	title string
}

type barChart struct {
	label, name string // name: name of the horizontal axis
	groups      []barGroup
	means       []barMean
	text        func(float64) string
	y           func(values []float64, from, to float64) scale
	one         bool // a line at 1
}

// fromZero returns a scale that starts at 0, so a bar of twice the value is twice as long.
func fromZero(values []float64, from, to float64) scale {
	high := 0.0
	for _, v := range values {
		high = max(high, v)
	}
	if high == 0 {
		high = 1
	}
	return scale{0, high * 1.1, from, to, false}
}

func (c barChart) draw(w float64) template.HTML {
	const bottom, top = 226.0, 14.0
	height := 260.0
	if c.name != "" {
		height += 6
	}
	d := newDrawing(w, height, c.label)
	var values []float64
	for _, g := range c.groups {
		for _, b := range g.bars {
			values = append(values, b.value, b.high, b.behind)
		}
	}
	y := axisOf(c.y(values, bottom, top), c.text, 6)
	left := y.widest() + 10
	x := axis{scale: scale{0, float64(len(c.groups)), left, w, false}, name: c.name, bare: true}
	x.text = func(at float64) string { return c.groups[int(at)].name }
	for i := range c.groups {
		x.ticks = append(x.ticks, float64(i)+0.5)
	}
	d.frame(x, y, 0)
	if c.one {
		d.line("one", left, y.at(1), w, y.at(1))
	}
	each := (w - left) / float64(max(1, len(c.groups)))
	for i, g := range c.groups {
		inner := min(each*0.78, 64*float64(len(g.bars)))
		one := inner / float64(max(1, len(g.bars)))
		gap := min(3, one*0.15)
		for j, b := range g.bars {
			if b.value == 0 && b.behind == 0 {
				continue
			}
			x0 := x.at(x.ticks[i]) - inner/2 + one*float64(j)
			class := b.key.Class
			if b.faint {
				class += " faint"
			}
			d.group(class, b.title, func() {
				if b.behind > 0 {
					d.rect("behind", x0+gap/2, y.at(b.behind), one-gap, bottom-y.at(b.behind))
				}
				if b.value > 0 {
					d.rect("bar", x0+gap/2, y.at(b.value), one-gap, bottom-y.at(b.value))
				}
				if b.high > b.low {
					x := x0 + one/2
					d.line("whisker ink", x, y.at(y.inside(b.low)), x, y.at(y.inside(b.high)))
				}
				if b.top != "" && widthOf(b.top) <= one+8 {
					d.text("tick", middle, x0+one/2, y.at(b.value)-4, b.top)
				}
				if b.minus != "" && widthOf(b.minus) <= one+8 {
					d.text("minus", middle, x0+one/2, y.at(max(b.value, b.behind))-4, b.minus)
				}
			})
		}
	}
	for _, m := range c.means {
		if m.at > x.low && m.at < x.high {
			d.group(m.key.Class, m.title, func() { d.line("dashed", x.at(m.at), top, x.at(m.at), bottom) })
		}
	}
	return d.html()
}

// achieved draws a chart with a bar for each requested and each achieved rate.
func (v *view) achieved() *figure {
	c := barChart{label: "Requests per second that were asked for and achieved, by load point and variant; the " +
		"values stand in the table", text: short, y: fromZero}
	open := false
	name, x := loadAxis(v.Summary.Points)
	for _, p := range v.Summary.Points {
		g := barGroup{name: short(x(p))}
		for _, s := range p.Variants {
			b := bar{key: keyOf(v.Keys, s.Name), value: s.Achieved, behind: p.Rate}
			b.title = fmt.Sprintf("%s, %s: %s/s achieved", s.Name, p.Name, number(s.Achieved))
			if p.Rate > 0 {
				open = true
				b.title += fmt.Sprintf(" of %s/s", number(p.Rate))
				if s.Short > result.FivePercent {
					b.minus = "−" + share(s.Short)
				}
			}
			g.bars = append(g.bars, b)
		}
		if len(g.bars) > 0 {
			c.groups = append(c.groups, g)
		}
	}
	if !open {
		return nil // a closed loop has no requested rate; percentileLines draws its achieved rate
	}
	const rule = " A bar that is more than 5 % short has a label: the papers' rule allows no more."
	if len(c.groups) > 1 {
		caption := ": bars are the achieved rates, the pale bars behind them the rates asked for." + rule
		return inTwoSizes("achieved", "Requests per second, by "+name+caption, c.draw)
	}
	top := 0.0
	for _, b := range c.groups[0].bars {
		top = max(top, b.value, b.behind)
	}
	one := bars{Name: grouped(v.Summary.Points[0].Name)}
	for _, b := range c.groups[0].bars {
		h := hbar{Key: b.key, Text: number(b.value) + "/s", Percent: percentOf(b.value, top)}
		h.Mark, h.MarkTitle = percentOf(b.behind, top), "asked for"
		if b.minus != "" {
			h.Detail = b.minus + " of the rate asked for"
		}
		one.Bars = append(one.Bars, h)
	}
	caption := "Requests per second that were achieved; the tick is the rate asked for." + rule
	return &figure{ID: "achieved", Bars: []bars{one}, Caption: caption}
}

// latencyBars draws the latency of each variant as bars: for HTTP, the times to the first byte and to
// the last byte side by side. For other workloads with one load point, which has no line over load, it
// draws the latency, and the rate of a closed loop.
func (v *view) latencyBars(p result.PointSummary) *figure {
	if len(p.Variants) == 0 {
		return nil
	}
	alone := len(v.Summary.Points) == 1
	f := &figure{ID: "bytes", Caption: "Thin lines: 95 % intervals. A refused value has no bar. Where times differ " +
		"much the scale is logarithmic."}
	if p.Mode != result.Live {
		f.Caption = "From the intended send time. " + f.Caption
	}
	last := func(s result.VariantSummary) (float64, []result.Percentile) { return s.Mean, s.Percentiles }
	switch {
	case len(p.Variants[0].FirstByte) > 0:
		first := func(s result.VariantSummary) (float64, []result.Percentile) { return s.FirstByteMean, s.FirstByte }
		f.Panels = []titled{v.timeBars(p, "Time to the first byte", first),
			v.timeBars(p, "Time to the last byte", last)}
	case alone:
		f.Panels = []titled{v.timeBars(p, "Latency", last)}
	}
	if alone && p.Rate == 0 { // the rate of an open loop is in the figure of achieved
		f.Panels = append(f.Panels, v.rateBars(p))
	}
	if len(f.Panels) == 0 {
		return nil
	}
	return f
}

// half is the width of a chart that has another one beside it.
const half = 2 * panel * 0.72

func titledChart(title string, c barChart) titled {
	return titled{title, picture{c.draw(half), c.draw(narrow)}}
}

// timeBars draws a mean and percentiles.
func (v *view) timeBars(p result.PointSummary, title string,
	of func(result.VariantSummary) (float64, []result.Percentile)) titled {
	c := barChart{label: title + " by percentile and variant; the values stand in the table", text: tickText,
		y: barScale}
	c.groups = []barGroup{{name: "mean"}}
	for _, s := range p.Variants {
		mean, _ := of(s)
		b := bar{key: keyOf(v.Keys, s.Name), value: mean, title: s.Name + ", mean: " + result.DurationText(mean)}
		c.groups[0].bars = append(c.groups[0].bars, b)
	}
	for i, at := range v.Summary.Percentiles {
		g := barGroup{name: result.PercentileText(at)}
		some := false
		for _, s := range p.Variants {
			b := bar{key: keyOf(v.Keys, s.Name)}
			if _, list := of(s); i < len(list) && list[i].Estimate != nil {
				e := list[i].Estimate
				b.value, b.low, b.high = float64(e.Value), float64(e.Low), float64(e.High)
				b.title = fmt.Sprintf("%s, %s: %s", s.Name, g.name, result.IntervalText(*e))
				some = true
			}
			g.bars = append(g.bars, b)
		}
		if some {
			c.groups = append(c.groups, g)
		}
	}
	return titledChart(title, c)
}

// rateBars draws the achieved rate of a closed loop.
func (v *view) rateBars(p result.PointSummary) titled {
	g := barGroup{}
	for _, s := range p.Variants {
		g.bars = append(g.bars, bar{key: keyOf(v.Keys, s.Name), value: s.Achieved, top: short(s.Achieved),
			title: fmt.Sprintf("%s: %s/s achieved", s.Name, number(s.Achieved))})
	}
	return titledChart("Requests per second", barChart{groups: []barGroup{g}, text: short, y: fromZero,
		label: "Achieved requests per second by variant; the values stand in the table"})
}

// normalised draws the mean and the percentiles of each variant, divided by those of the base, as the
// papers do. HTTP has a chart for the first byte and one for the last byte.
func (v *view) normalised(p result.PointSummary) *figure {
	last := v.ratioBars(p, func(s result.VariantSummary) (*result.Judged, []result.Percentile) {
		return s.MeanRatio, s.Percentiles
	})
	first := v.ratioBars(p, func(s result.VariantSummary) (*result.Judged, []result.Percentile) {
		return s.FirstByteMeanRatio, s.FirstByte
	})
	caption := "Latency divided by that of " + p.Base + ", which is 1: a bar of half the height is half the time. " +
		"Thin lines: 95 % intervals of the ratios, by pairs of repeats. Pale: ~, noise may explain it. A refused " +
		"ratio has no bar."
	switch {
	case len(last.groups) == 0:
		return nil
	case len(first.groups) == 0:
		return inTwoSizes("normalised", caption, last.draw)
	}
	return &figure{ID: "normalised", Caption: caption, Panels: []titled{titledChart("Time to the first byte", first),
		titledChart("Time to the last byte", last)}}
}

func (v *view) ratioBars(p result.PointSummary,
	of func(result.VariantSummary) (*result.Judged, []result.Percentile)) barChart {
	c := barChart{label: "Latency divided by that of " + p.Base + ", by percentile and variant; the values stand in " +
		"the table", text: func(v float64) string { return trimmed(times(v)) }, y: barScale, one: true}
	add := func(name string, ratio func(result.VariantSummary) (*stats.Ratio, *stats.Difference)) {
		g, some := barGroup{name: name}, false
		for _, s := range p.Variants {
			b := bar{key: keyOf(v.Keys, s.Name)}
			if s.Name == p.Base {
				b.value, b.title = 1, s.Name+", "+name+": the base"
			} else if r, d := ratio(s); r != nil && narrowed(*r) {
				b.value, b.low, b.high, some = r.Estimate, r.Low, r.High, true
				b.faint = d != nil && d.Text == stats.Same
				b.title = fmt.Sprintf("%s, %s: ×%s (%s to %s)", s.Name, name, times(r.Estimate), times(r.Low),
					times(r.High))
			}
			g.bars = append(g.bars, b)
		}
		if some {
			c.groups = append(c.groups, g)
		}
	}
	add("mean", func(s result.VariantSummary) (*stats.Ratio, *stats.Difference) {
		if mean, _ := of(s); mean != nil {
			return &mean.Ratio, &mean.Difference
		}
		return nil, nil
	})
	for i, at := range v.Summary.Percentiles {
		add(result.PercentileText(at), func(s result.VariantSummary) (*stats.Ratio, *stats.Difference) {
			if _, list := of(s); i < len(list) {
				return list[i].Ratio, list[i].Difference
			}
			return nil, nil
		})
	}
	return c
}

// jitterBars returns a bar for each variant's P99 above its P50; nil if none has both.
func (v *view) jitterBars(p result.PointSummary) []bars {
	one, top := bars{Name: "P99 above P50"}, 0.0
	for _, s := range p.Variants {
		if s.Jitter != nil {
			top = max(top, float64(s.Jitter.High))
		}
	}
	var refused []string
	for _, s := range p.Variants {
		j := s.Jitter
		if j == nil {
			refused = append(refused, s.Name)
			continue
		}
		one.Bars = append(one.Bars, hbar{Key: keyOf(v.Keys, s.Name), Mark: -1,
			Text: result.DurationText(float64(j.Value)), Percent: percentOf(float64(j.Value), top),
			Detail: result.DurationText(float64(j.Low)) + " to " + result.DurationText(float64(j.High))})
	}
	if top == 0 {
		return nil
	}
	if len(refused) > 0 {
		one.Note = "too few requests: " + strings.Join(refused, ", ")
	}
	return []bars{one}
}

// barScale returns a scale that starts at zero. It is logarithmic if small bars would be invisible.
func barScale(values []float64, from, to float64) scale {
	s := scaleOf(values, from, to)
	if s.log && s.high/s.low > 60 {
		return s
	}
	return fromZero(values, from, to)
}

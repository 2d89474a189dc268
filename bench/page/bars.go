// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"

	"github.com/niclane/niclane/bench/result"
)

// A barGroup is one bar for each variant.
type barGroup struct {
	name string
	bars []bar
}

type bar struct {
	key              key
	value, low, high float64 // low and high 0: no interval
	behind           float64 // a shadow of what was asked for, 0: none
	title, minus     string  // minus: what is missing, above the bar
}

type barChart struct {
	label  string
	groups []barGroup
	text   func(float64) string
	y      func(values []float64, from, to float64) scale
}

// fromZero is a scale for bars: what looks twice as long is twice as much.
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
	const height, bottom, top = 260.0, 226.0, 14.0
	d := newDrawing(w, height, c.label)
	var values []float64
	for _, g := range c.groups {
		for _, b := range g.bars {
			values = append(values, b.value, b.high, b.behind)
		}
	}
	y := axis{scale: c.y(values, bottom, top), text: c.text}
	y.ticks = y.scale.ticks(6)
	left := y.widest() + 10
	for _, t := range y.ticks {
		d.line("grid", left, y.at(t), w, y.at(t))
		d.text("tick", end, left-7, y.at(t)+4, y.text(t))
	}
	base := bottom
	each := (w - left) / float64(max(1, len(c.groups)))
	free := left - 30.0
	for i, g := range c.groups {
		from := left + each*float64(i)
		inner := min(each*0.78, 64*float64(len(g.bars)))
		begin := from + (each-inner)/2
		one := inner / float64(max(1, len(g.bars)))
		gap := min(3, one*0.15)
		for j, b := range g.bars {
			x0 := begin + one*float64(j)
			d.group(b.key.Class, b.title, func() {
				if b.behind > 0 {
					d.rect("behind", x0+gap/2, y.at(b.behind), one-gap, base-y.at(b.behind))
				}
				if b.value > 0 {
					d.rect("bar", x0+gap/2, y.at(b.value), one-gap, base-y.at(b.value))
				}
				if b.high > b.low {
					x := x0 + one/2
					d.line("whisker ink", x, y.at(y.inside(b.low)), x, y.at(y.inside(b.high)))
				}
				if b.minus != "" && widthOf(b.minus) <= one+8 {
					d.text("minus", middle, x0+one/2, y.at(max(b.value, b.behind))-4, b.minus)
				}
			})
		}
		at, half := from+each/2, widthOf(g.name)/2
		if at-half < free {
			continue
		}
		d.text("tick", middle, at, bottom+17, g.name)
		free = at + half + 6
	}
	d.line("axis", left, base, w, base)
	return d.html()
}

// achieved are the bars of requested and achieved rates.
func (v *view) achieved() *figure {
	c := barChart{label: "Requests per second that were asked for and achieved, by load point and variant; the values stand in the table", text: short, y: fromZero}
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
				if s.Short > fivePercent {
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
		return nil // a closed loop is asked for nothing; what it achieved is a panel
	}
	f := &figure{ID: "achieved"}
	if len(c.groups) == 1 {
		f.Bars = []bars{{Name: grouped(v.Summary.Points[0].Name)}}
		top := 0.0
		for _, b := range c.groups[0].bars {
			top = max(top, b.value, b.behind)
		}
		for _, b := range c.groups[0].bars {
			h := hbar{Key: b.key, Text: number(b.value) + "/s", Percent: percentOf(b.value, top), Mark: percentOf(b.behind, top), MarkTitle: "asked for"}
			if b.minus != "" {
				h.Detail = b.minus + " of what was asked for"
			}
			f.Bars[0].Bars = append(f.Bars[0].Bars, h)
		}
		f.Caption = "Requests per second that were achieved; the tick is what was asked for. More than 5 % short, by the papers' rule too much, is named."
		return f
	}
	f.Wide, f.Narrow = c.draw(wide), c.draw(narrow)
	f.Caption = "Requests per second, by " + name + ": bars are what was achieved, the pale ones behind them what was asked for. More than 5 % short, by the papers' rule too much, is named."
	return f
}

// fivePercent is the papers' rule for a rate that is not kept.
const fivePercent = 0.05

// byteBars are the times to the first and to the last byte, side by side.
func (v *view) byteBars(p result.PointSummary) *figure {
	if len(p.Variants) == 0 || len(p.Variants[0].FirstByte) == 0 {
		return nil
	}
	draw := func(title string, mean func(result.VariantSummary) float64, list func(result.VariantSummary) []result.Percentile) template.HTML {
		c := barChart{label: title + " by percentile and variant; the values stand in the table", text: tickText, y: barScale}
		for i := -1; i < len(v.Summary.Percentiles); i++ {
			g := barGroup{name: "mean"}
			some := i < 0
			if i >= 0 {
				g.name = result.PercentileText(v.Summary.Percentiles[i])
			}
			for _, s := range p.Variants {
				b := bar{key: keyOf(v.Keys, s.Name)}
				switch {
				case i < 0:
					b.value = mean(s)
					b.title = fmt.Sprintf("%s, mean: %s", s.Name, result.DurationText(b.value))
				case i < len(list(s)) && list(s)[i].Estimate != nil:
					e := list(s)[i].Estimate
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
		return c.draw(2 * panel * 0.72)
	}
	f := &figure{ID: "bytes"}
	f.Panels = append(f.Panels,
		titled{"Time to the first byte", draw("Time to the first byte", func(s result.VariantSummary) float64 { return s.FirstByteMean }, func(s result.VariantSummary) []result.Percentile { return s.FirstByte })},
		titled{"Time to the last byte", draw("Time to the last byte", func(s result.VariantSummary) float64 { return s.Mean }, func(s result.VariantSummary) []result.Percentile { return s.Percentiles })})
	f.Caption = "From the intended send time. Thin lines: 95 % intervals. What is refused has no bar. Where times differ much the scale is logarithmic."
	return f
}

// barScale is from zero, or logarithmic where nothing could be seen then.
func barScale(values []float64, from, to float64) scale {
	s := scaleOf(values, from, to)
	if s.log && s.high/s.low > 60 {
		return s
	}
	return fromZero(values, from, to)
}

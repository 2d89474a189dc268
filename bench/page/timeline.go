// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
)

// timeLine draws one round over time, with the variants one below the other.
func (v *view) timeLine() *figure {
	t := v.Summary.Slowest
	if t == nil || len(t.Variants) == 0 {
		return nil
	}
	caption := fmt.Sprintf("The round with the slowest request of all: %s, repeat %d. Every %s: the slowest request "+
		"that was answered then (bold), and their median (thin, where there are enough); "+
		"no line where none was answered.",
		grouped(t.Point), t.Repeat, result.DurationText(float64(t.Interval)))
	noise, stalls := false, false
	for _, x := range t.Variants {
		noise, stalls = noise || len(x.Noise) > 0, stalls || len(x.Stalls) > 0
	}
	if noise {
		caption += " Below: the received rate of the noise to the SUT and, dashed, from it; " +
			"red ticks: segments or datagrams of the noise were lost."
	}
	if stalls {
		caption += " Red blocks at the bottom: a thread of the generator itself made no progress, " +
			"mostly because it had lost its processor."
	}
	return inTwoSizes("timeline", caption, func(w float64) template.HTML { return v.drawTimeLine(t, w) })
}

func (v *view) drawTimeLine(t *result.TimeLine, w float64) template.HTML {
	var latencies []float64
	duration, noise, stalls := int64(0), 0.0, false
	for _, x := range t.Variants {
		duration = max(duration, x.Duration)
		for _, l := range x.Latency {
			latencies = append(latencies, float64(l.Slowest), float64(l.Median))
			// An answer may come after the end of the counted time.
			duration = max(duration, l.At+t.Interval)
		}
		for _, s := range x.Noise {
			for _, r := range s.Rates {
				noise = max(noise, r)
			}
		}
		stalls = stalls || len(x.Stalls) > 0
	}
	low, high := ends(latencies)
	if high == 0 {
		return ""
	}
	const head, latencyHeight, noiseHeight, stallHeight = 22.0, 104.0, 46.0, 12.0
	each := head + latencyHeight + 14
	if noise > 0 {
		each += noiseHeight + 8
	}
	if stalls {
		each += stallHeight
	}
	h := each*float64(len(t.Variants)) + 34
	d := newDrawing(w, h, "Latency, noise and stalls of the generator over time in one round, by variant")
	y := axisOf(logScale(low, high, 0, 0), tickText, 4)
	n := axis{scale: scale{0, noise * 1.1, 0, 0, false}, text: tickBits}
	if noise > 0 {
		n.ticks = n.scale.ticks(2)[1:] // without the label 0, which is at the axis line
	}
	left := max(y.widest(), n.widest()) + 10
	x := axisOf(scale{0, float64(duration), left, w - 8, false}, tickText, int(w/110))
	mid := func(at, interval int64) float64 { return x.at(float64(at) + float64(interval)/2) }
	top := 0.0
	for _, variant := range t.Variants {
		k := keyOf(v.Keys, variant.Name)
		d.group(k.Class, "", func() { d.marker(1, left+5, top+9, 4.5) })
		d.text("label", start, left+15, top+13, variant.Name)
		y.from, y.to = top+head+latencyHeight, top+head
		d.rows(y, left, w-8)
		d.line("axis", left, y.from, w-8, y.from)
		var slowest, median []point
		for i, l := range variant.Latency {
			if i > 0 && l.At-variant.Latency[i-1].At > t.Interval {
				slowest, median = append(slowest, gap()), append(median, gap()) // no answer in this interval
			}
			at := mid(l.At, t.Interval)
			slowest, median = append(slowest, point{at, y.at(float64(l.Slowest))}), append(median, gap())
			if l.Median > 0 {
				median[len(median)-1] = point{at, y.at(float64(l.Median))}
			}
		}
		d.group(k.Class, "", func() {
			d.path("thin", median)
			d.path("stroke", slowest)
		})
		for _, l := range variant.Latency {
			title := fmt.Sprintf("%s at %s: slowest of %s requests %s", variant.Name, tickText(float64(l.At)),
				count(l.Count), result.DurationText(float64(l.Slowest)))
			if l.Median > 0 {
				title += ", median " + result.DurationText(float64(l.Median))
			}
			d.group(k.Class, title, func() { d.marker(0, mid(l.At, t.Interval), y.at(float64(l.Slowest)), 2.2) })
		}
		bottom := y.from
		if noise > 0 {
			n.from, n.to = bottom+8+noiseHeight, bottom+8
			d.rows(n, left, w-8)
			for _, s := range variant.Noise {
				var line, base []point
				for i, r := range s.Rates {
					at := mid(s.Start+int64(i)*s.Interval, s.Interval)
					line = append(line, point{at, n.at(r)})
					base = append(base, point{at, n.from})
				}
				class := "noise"
				if s.Direction == experiment.FromSUT {
					class = "noise dashed"
				} else {
					d.area("noise-area", line, base)
				}
				d.group("", "noise "+result.Way(s.Direction)+", asked for "+result.BitsText(s.Asked),
					func() { d.path(class, line) })
			}
			for _, s := range variant.Noise {
				for i, t := range s.Trouble {
					if t > 0 {
						at := mid(s.Start+int64(i)*s.Interval, s.Interval)
						d.group("", fmt.Sprintf("noise %s at %s: %s segments or datagrams lost",
							result.Way(s.Direction), tickText(float64(s.Start+int64(i)*s.Interval)), count(t)), func() {
							d.line("trouble", at, n.from, at, n.from-7)
						})
					}
				}
			}
			if len(variant.Noise) == 0 {
				d.text("tick", start, left+5, n.from-6, "no noise")
			}
			d.line("axis", left, n.from, w-8, n.from)
			bottom = n.from
		}
		if stalls {
			for _, s := range variant.Stalls {
				from, to := x.at(x.inside(float64(s.At))), x.at(x.inside(float64(s.At+s.Ns)))
				d.group("stall", fmt.Sprintf("stall of the generator at %s: %s", tickText(float64(s.At)),
					result.DurationText(float64(s.Ns))), func() {
					d.rect("stall-bar", from, bottom+3, max(1, to-from), 7)
				})
			}
		}
		top += each
	}
	top -= 4
	d.labels(x, top+16)
	return d.html()
}

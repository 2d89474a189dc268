// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"math"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats/fanout"
)

// fanOut is how many servers one request can ask, over the response time.
func (v *view) fanOut(f result.FanOut) *figure {
	out := &figure{ID: "fan-out", Wide: v.drawFanOut(f, wide), Narrow: v.drawFanOut(f, narrow)}
	if out.Wide == "" {
		return nil
	}
	out.Caption = fmt.Sprintf("How many servers one request can ask in parallel and have all answers within the time on the horizontal axis with a probability of %s, if each is as the measured one and they are slow independently of each other. Bands: 95 %% interval. A line ends where the sample says no more than that it is at least as many.",
		trimmed(share(f.Probability)))
	return out
}

func (v *view) drawFanOut(f result.FanOut, w float64) template.HTML {
	const h, bottom = 320.0, 276.0
	var values []float64
	for _, s := range f.Variants {
		for _, a := range s.Answers {
			if a.Missing == "" && a.Servers > 0 {
				values = append(values, float64(a.Servers))
			}
		}
	}
	if len(values) == 0 || len(f.Times) < 2 {
		return ""
	}
	d := newDrawing(w, h, "Servers that one request can ask in parallel, over the response time, by variant; the values stand in the table")
	y := axis{scale: logScale(1, max(10, maxOf(values)), bottom, 10), text: short}
	y.ticks = y.scale.ticks(8)
	left := y.widest() + 10
	x := axis{scale: logScale(float64(f.Times[0]), float64(f.Times[len(f.Times)-1]), left, w-6), text: tickText}
	x.ticks = x.scale.ticks(int(w / 60))
	d.frame(x, y)
	d.text("tick", middle, (left+w)/2, h-4, "response time")
	inside := func(n int64) float64 { return y.at(y.inside(math.Max(float64(n), y.low))) }
	for _, s := range f.Variants {
		k := keyOf(v.Keys, s.Name)
		var line, low, high []point
		flush := func() {
			d.group(k.Class, s.Name, func() {
				d.area("band", high, low)
				d.path("stroke bold", line)
			})
			line, low, high = nil, nil, nil
		}
		for i, a := range s.Answers {
			if a.Missing != "" || a.Servers == 0 {
				flush()
				continue
			}
			at := x.at(float64(f.Times[i]))
			line = append(line, point{at, inside(a.Servers)})
			low, high = append(low, point{at, inside(a.Low)}), append(high, point{at, inside(a.High)})
		}
		flush()
		for i, a := range s.Answers {
			if a.Missing == "" && a.Servers > 0 {
				d.group(k.Class, fmt.Sprintf("%s, within %s: %s servers", s.Name, tickText(float64(f.Times[i])), answerText(a)), func() {
					d.marker(k.shape, x.at(float64(f.Times[i])), inside(a.Servers), 3.2)
				})
			}
		}
	}
	return d.html()
}

func answerText(a fanout.Answer) string {
	switch {
	case a.Missing != "":
		return "at least " + count(a.Low)
	case a.High == fanout.Most:
		return fmt.Sprintf("%s (%s or more)", count(a.Servers), count(a.Low))
	}
	return fmt.Sprintf("%s (%s to %s)", count(a.Servers), count(a.Low), count(a.High))
}

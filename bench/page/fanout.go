// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats/fanout"
)

// fanOut draws, for each response time, how many servers one request can ask in parallel.
func (v *view) fanOut(f result.FanOut) *figure {
	caption := fmt.Sprintf("How many servers one request can ask in parallel so that, with a probability of %s, all "+
		"answers arrive within the time on the horizontal axis. It assumes that each server is like the measured "+
		"one, and that servers are slow independently of each other. Bands: 95 %% interval. A line ends where the "+
		"sample gives only a lower bound.",
		tickShare(f.Probability))
	return inTwoSizes("fan-out", caption, func(w float64) template.HTML { return v.drawFanOut(f, w) })
}

func (v *view) drawFanOut(f result.FanOut, w float64) template.HTML {
	const h, bottom = 316.0, 276.0
	var values []float64
	for _, s := range f.Variants {
		for _, a := range s.Answers {
			values = append(values, float64(a.Servers))
		}
	}
	_, high := ends(values)
	if high == 0 || len(f.Times) < 2 {
		return ""
	}
	d := newDrawing(w, h, "Servers that one request can ask in parallel, over the response time, by variant; the "+
		"values stand in the table")
	y := axisOf(logScale(1, max(10, high), bottom, 10), short, 8)
	left := y.widest() + 10
	x := axisOf(logScale(float64(f.Times[0]), float64(f.Times[len(f.Times)-1]), left, w-6), tickText, int(w/60))
	x.name = "response time"
	d.frame(x, y, 0)
	at := func(time, n int64) point {
		return point{x.at(float64(time)), y.at(y.inside(float64(n)))}
	}
	for _, s := range f.Variants {
		k := keyOf(v.Keys, s.Name)
		var line, low, high []point
		for i, a := range s.Answers {
			three := [3]point{gap(), gap(), gap()}
			if a.Missing == "" && a.Servers > 0 {
				three = [3]point{at(f.Times[i], a.Low), at(f.Times[i], a.Servers), at(f.Times[i], a.High)}
			}
			low, line, high = append(low, three[0]), append(line, three[1]), append(high, three[2])
		}
		d.group(k.Class, s.Name, func() {
			d.area("band", high, low)
			d.path("stroke bold", line)
		})
		for i, p := range line {
			if !p.unknown() {
				time := tickText(float64(f.Times[i]))
				title := fmt.Sprintf("%s, within %s: %s servers", s.Name, time, answerText(s.Answers[i]))
				d.group(k.Class, title, func() { d.marker(k.shape, p.x, p.y, 3.2) })
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

// SPDX-License-Identifier: Apache-2.0

package page

import "unicode/utf8"

// Widths in CSS pixels: of a figure on a desktop, of a figure on a phone, and of a panel. A panel
// has one size for both.
const (
	wide   = 992.0
	narrow = 358.0
	panel  = 330.0
)

// An axis of a plot.
type axis struct {
	scale
	text  func(float64) string
	ticks []float64
	name  string // name of the axis, shown below the labels
	bare  bool   // no grid lines
}

// axisOf returns an axis for a scale, with about most ticks or fewer.
func axisOf(s scale, text func(float64) string, most int) axis {
	return axis{scale: s, text: text, ticks: s.ticks(most)}
}

// widthOf estimates the width of a text in the tick font, in pixels. It estimates more than the
// usual width, because the reader's fonts are not known.
func widthOf(s string) float64 { return 6.9 * float64(utf8.RuneCountInString(s)) }

// widest returns the width of the axis's widest label.
func (a axis) widest() (w float64) {
	for _, t := range a.ticks {
		w = max(w, widthOf(a.text(t)))
	}
	return w
}

// frame draws the grid, the labels and the lines of the axes. Both scales must know their pixels.
// space is the distance between the plot and the labels of x below it.
func (d *drawing) frame(x, y axis, space float64) {
	bottom := max(y.from, y.to)
	d.rows(y, x.from, x.to)
	d.columns(x, min(y.from, y.to), bottom)
	d.labels(x, bottom+space+17)
	d.line("axis", x.from, bottom, x.to, bottom)
}

// rows draws the labels and grid lines of a vertical axis.
func (d *drawing) rows(y axis, left, right float64) {
	for _, t := range y.ticks {
		at := y.at(t)
		d.line("grid", left, at, right, at)
		d.text("tick", end, left-7, at+4, y.text(t))
	}
}

// columns draws the grid lines of a horizontal axis.
func (d *drawing) columns(x axis, top, bottom float64) {
	for _, t := range x.ticks {
		if !x.bare {
			d.line("grid", x.at(t), top, x.at(t), bottom)
		}
	}
}

// labels draws the labels of a horizontal axis. It leaves out a label that would overlap the one
// before it or leave the picture.
func (d *drawing) labels(x axis, baseline float64) {
	free := 0.0 // left edge of the space that is still free
	for _, t := range x.ticks {
		at, half := x.at(t), widthOf(x.text(t))/2
		if at-half < free || at+half > d.w+2 {
			continue
		}
		d.text("tick", middle, at, baseline, x.text(t))
		free = at + half + 6
	}
	if x.name != "" {
		d.text("tick", middle, (x.from+x.to)/2, baseline+18, x.name)
	}
}

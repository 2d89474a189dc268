// SPDX-License-Identifier: Apache-2.0

package page

import "unicode/utf8"

// Sizes in CSS pixels: a figure on a desktop and on a phone, and one of several
// side by side, which has the same size on both.
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
}

// widthOf a text in the style sheet's tick font, estimated on the safe side:
// nobody here knows the fonts of a reader.
func widthOf(s string) float64 { return 6.9 * float64(utf8.RuneCountInString(s)) }

// widest of the axis' labels.
func (a axis) widest() (w float64) {
	for _, t := range a.ticks {
		w = max(w, widthOf(a.text(t)))
	}
	return w
}

// frame draws grid, labels and axis lines. Both scales have their pixels.
func (d *drawing) frame(x, y axis) {
	left, right := min(x.from, x.to), max(x.from, x.to)
	for _, t := range y.ticks {
		at := y.at(t)
		d.line("grid", left, at, right, at)
		d.text("tick", end, left-7, at+4, y.text(t))
	}
	bottom := max(y.from, y.to)
	free := left - 20 // up to where labels stand
	for _, t := range x.ticks {
		at, text := x.at(t), x.text(t)
		d.line("grid", at, min(y.from, y.to), at, bottom)
		half := widthOf(text) / 2
		if at-half < free || at+half > d.w+2 {
			continue // it would run into its neighbour, or out of the picture
		}
		d.text("tick", middle, at, bottom+17, text)
		free = at + half + 6
	}
	d.line("axis", left, bottom, right, bottom)
}

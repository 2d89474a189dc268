// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A drawing is an SVG picture that is being built. Its elements have classes; the page's style
// sheet has their colours and fonts.
type drawing struct {
	b    strings.Builder
	w, h float64
}

// newDrawing starts a picture of w × h CSS pixels. label describes the picture for screen readers.
func newDrawing(w, h float64, label string) *drawing {
	d := &drawing{w: w, h: h}
	fmt.Fprintf(&d.b, `<svg viewBox="0 0 %s %s" role="img" aria-label="%s">`, num(w), num(h), html.EscapeString(label))
	return d
}

func (d *drawing) html() template.HTML {
	return template.HTML(d.b.String() + "</svg>")
}

// num renders a coordinate to a tenth of a pixel.
func num(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, num(x1), num(y1), num(x2), num(y2))
}

func (d *drawing) rect(class string, x, y, w, h float64) {
	fmt.Fprintf(&d.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, class, num(x), num(y), num(w), num(h))
}

// Values of text-anchor: which end of a text is at its point.
const (
	start  = "start"
	middle = "middle"
	end    = "end"
)

func (d *drawing) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(&d.b, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, num(x), num(y),
		html.EscapeString(text))
}

type point struct{ x, y float64 }

// gap returns a point for an unknown value. Lines are interrupted there.
func gap() point { return point{math.NaN(), math.NaN()} }

func (p point) unknown() bool { return math.IsNaN(p.x) }

// stretches returns the sequences of points between gaps.
func stretches(points []point) [][]point {
	for i, p := range points {
		if p.unknown() {
			return append([][]point{points[:i]}, stretches(points[i+1:])...)
		}
	}
	return [][]point{points}
}

// path draws a line through points, interrupted at gaps.
func (d *drawing) path(class string, points []point) {
	for _, s := range stretches(points) {
		if len(s) > 1 {
			fmt.Fprintf(&d.b, `<path class="%s" d="%s"/>`, class, through(s))
		}
	}
}

// area fills the area between two lines. Both must have the same x values and the same gaps.
func (d *drawing) area(class string, upper, lower []point) {
	below := stretches(lower)
	for i, s := range stretches(upper) {
		if len(s) > 1 {
			slices.Reverse(below[i])
			fmt.Fprintf(&d.b, `<path class="%s" d="%sZ"/>`, class, through(slices.Concat(s, below[i])))
		}
	}
}

func through(points []point) string {
	var b strings.Builder
	for i, p := range points {
		b.WriteByte("ML"[min(i, 1)])
		b.WriteString(num(p.x) + " " + num(p.y))
	}
	return b.String()
}

// group draws elements in one colour, with a title that appears under the pointer.
func (d *drawing) group(class, title string, draw func()) {
	fmt.Fprintf(&d.b, `<g class="%s">`, class)
	if title != "" {
		fmt.Fprintf(&d.b, `<title>%s</title>`, html.EscapeString(title))
	}
	draw()
	d.b.WriteString("</g>")
}

// marker draws one of several shapes, so that variants can be told apart without colour.
func (d *drawing) marker(shape int, x, y, r float64) {
	k := r * 1.35
	corners := [][]point{nil,
		{{x - r, y - r}, {x + r, y - r}, {x + r, y + r}, {x - r, y + r}},
		{{x, y - k}, {x + k, y}, {x, y + k}, {x - k, y}},
		{{x, y - k}, {x + k, y + r}, {x - k, y + r}},
	}[shape%4]
	if corners == nil {
		fmt.Fprintf(&d.b, `<circle class="dot" cx="%s" cy="%s" r="%s"/>`, num(x), num(y), num(r))
		return
	}
	fmt.Fprintf(&d.b, `<path class="dot" d="%sZ"/>`, through(corners))
}

// ring draws a circle around a point.
func (d *drawing) ring(x, y, r float64) {
	fmt.Fprintf(&d.b, `<circle class="ring" cx="%s" cy="%s" r="%s"/>`, num(x), num(y), num(r))
}

// cross draws the mark of a refused value.
func (d *drawing) cross(x, y, r float64) {
	d.line("cross", x-r, y-r, x+r, y+r)
	d.line("cross", x-r, y+r, x+r, y-r)
}

// SPDX-License-Identifier: Apache-2.0

package page

import (
	"errors"
	"fmt"
	"html"
	"io"
	"slices"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// WritePicture writes an SVG picture of a result's first load point: the latency of each
// variant by percentile, up to the highest percentile that its samples support. The picture
// needs no other file. It is light or dark as its reader's screen is. A result that supports no
// percentile is an error.
func WritePicture(w io.Writer, r *result.Result) error {
	v := &view{Result: r, Summary: result.Summarize(r), Keys: keys(r)}
	if len(v.Summary.Points) == 0 {
		return errors.New("the result has no load point to draw")
	}
	p := v.Summary.Points[0]
	p.Variants = slices.Clone(p.Variants)
	for i := range p.Variants {
		s := &p.Variants[i]
		s.Curve = supported(s.Curve, s.Percentiles)
	}
	f := v.distribution(p)
	if f == nil {
		return errors.New("the result supports no percentile to draw")
	}
	const margin, row, plot = 20.0, 22.0, 360.0
	width := wide + 2*margin
	top := 62 + row*float64(len(p.Variants))
	height := top + plot + margin + row
	d := &drawing{w: width, h: height}
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img">`,
		num(width), num(height), num(width), num(height))
	fmt.Fprintf(&d.b, "<title>%s</title><style>%s svg { overflow: visible; } .paper { fill: var(--bg); }</style>",
		html.EscapeString(r.Title), asset("chart.css"))
	d.rect("paper", 0, 0, width, height)
	d.text("title", start, margin, 30, r.Title)
	d.text("label", start, margin, 50, "Latency by percentile, "+p.Name)
	for i, s := range p.Variants {
		y := 74 + row*float64(i)
		k := keyOf(v.Keys, s.Name)
		d.group(k.Class, "", func() { d.line("stroke bold", margin, y-4, margin+28, y-4) })
		d.text("label", start, margin+38, y, s.Name+": "+k.Title)
	}
	fmt.Fprintf(&d.b, `<svg x="%s" y="%s" width="%s" height="%s">`, num(margin), num(top), num(wide), num(plot))
	d.b.WriteString(string(f.Wide) + "</svg>")
	note := "A curve ends at the highest percentile that its samples support."
	if len(v.Summary.Floor) > 0 {
		note += " Dashed: the host's own noise floor."
	}
	d.text("tick", start, margin, height-margin+6, note+" "+r.Started.UTC().Format("January 2006")+".")
	_, err := io.WriteString(w, string(d.html())+"\n")
	return err
}

// supported returns the part of a curve up to the highest percentile with an estimate.
func supported(curve []stats.Step, list []result.Percentile) []stats.Step {
	last := 0.0
	for _, c := range list {
		if c.Estimate != nil {
			last = max(last, c.P)
		}
	}
	end := slices.IndexFunc(curve, func(s stats.Step) bool { return s.Percentile > last })
	if end < 0 {
		return curve
	}
	return curve[:end]
}

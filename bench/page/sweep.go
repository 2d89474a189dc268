// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/niclane/niclane/internal/strictyaml"
)

// Sweeps are what a page of WriteSweeps shows.
type Sweeps struct {
	// Title is the page's, Lead are statements below it, without full stops.
	Title string   `json:"title"`
	Lead  []string `json:"lead"`
	// Niclane is the version that made the values.
	Niclane string  `json:"niclane"`
	Sweeps  []Sweep `json:"sweeps"`
}

// A Sweep shows how values depend on a setting, with a line for each case.
type Sweep struct {
	Title string   `json:"title"`
	Text  []string `json:"text"` // sentences
	// Axis is the name of the setting and Unit that of its values. Log says that they multiply from
	// one to the next.
	Axis  string `json:"axis"`
	Unit  Unit   `json:"unit"`
	Log   bool   `json:"log,omitempty"`
	Cases []Case `json:"cases"`
	// Values are those of the setting, Measures what is shown for each.
	Values   []float64 `json:"values"`
	Measures []Measure `json:"measures"`
}

// A Case is a line of each chart. Its class is that of a variant: without lanes, or with them.
type Case struct {
	Name  string `json:"name"`
	Lanes bool   `json:"lanes"`
}

// A Measure has a value for each case and value of the setting.
type Measure struct {
	Name   string    `json:"name"`
	Unit   Unit      `json:"unit"`
	Values [][]Range `json:"values"`
}

// A Range is the median, the least and the largest of several runs; 0: a run has no value. A time of 0
// is one for which a run had too few requests.
type Range struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// A Unit says how a value is written.
type Unit string

// The units: ns, bit/s, bytes, parts of 1, and numbers without a unit.
const (
	Time  Unit = "ns"
	Bits  Unit = "bit/s"
	Bytes Unit = "bytes"
	Share Unit = "share"
	Count Unit = "count"
)

func (u Unit) text(v float64) string {
	switch u {
	case Time:
		return tickText(v)
	case Bits:
		return tickBits(v)
	case Bytes:
		return strictyaml.SizeText(int64(v))
	case Share:
		return tickShare(v)
	}
	return number(v)
}

type sweepsView struct {
	Sweeps
	CSS      template.CSS
	Headline []string
	Sections []sweepView
}

type sweepView struct {
	Sweep
	Keys   []key
	Panels []template.HTML
	Rows   []sweepRow
}

// A sweepRow is a line of the table. Value is "" below the first line of a value.
type sweepRow struct {
	Value string
	Key   key
	Cells []string
}

// WriteSweeps writes the page.
func WriteSweeps(w io.Writer, s Sweeps) error {
	v := sweepsView{Sweeps: s, CSS: CSS()}
	for _, x := range s.Sweeps {
		v.Sections = append(v.Sections, sweepView{Sweep: x, Keys: x.keys(), Panels: x.panels(), Rows: x.rows()})
	}
	t, err := Head()
	if err == nil {
		t, err = t.New("sweep.html").Parse(asset("sweep.html"))
	}
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return t.Execute(w, v)
}

func (s Sweep) keys() (out []key) {
	n := map[bool]int{}
	for i, c := range s.Cases {
		classes := noisy
		if c.Lanes {
			classes = slices.Concat(laned, alone[:1])
		}
		out = append(out, key{c.Name, "", classes[n[c.Lanes]%len(classes)], i})
		n[c.Lanes]++
	}
	return out
}

func (s Sweep) panels() (out []template.HTML) {
	for _, m := range s.Measures {
		p := linesPanel{title: m.Name, xName: s.Axis, text: m.Unit.text, xText: s.Unit.text, xLog: s.Log}
		for i, k := range s.keys() {
			line := lineSeries{key: k}
			for j, x := range s.Values {
				switch y := m.Values[i][j]; {
				case y.Low > 0:
					line.points = append(line.points, linePoint{x: x, value: y.Median, low: y.Low, high: y.High})
				case m.Unit == Time:
					line.points = append(line.points, linePoint{x: x, missing: "too few requests"})
				}
			}
			p.series = append(p.series, line)
		}
		if p.any() {
			out = append(out, p.draw())
		}
	}
	return out
}

func (s Sweep) rows() (out []sweepRow) {
	for j, x := range s.Values {
		for i, k := range s.keys() {
			r := sweepRow{Key: k}
			if i == 0 {
				r.Value = s.Unit.text(x)
			}
			for _, m := range s.Measures {
				cell := "-"
				if y := m.Values[i][j]; y.Low > 0 {
					cell = m.Unit.text(y.Median)
				}
				r.Cells = append(r.Cells, cell)
			}
			out = append(out, r)
		}
	}
	return out
}

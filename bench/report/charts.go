// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/niclane/niclane/bench/stats"
)

// chartFile is what charts.js draws.
type chartFile struct {
	Curves  []chartCurve  `json:"curves"`
	Repeats []chartRepeat `json:"repeats"`
	Ratios  []chartRatio  `json:"ratios"`
	Goal    float64       `json:"goal"`
}

type chartCurve struct {
	Name  string       `json:"name"`
	Class string       `json:"cls"`
	Floor bool         `json:"floor,omitempty"`
	Steps []stats.Step `json:"steps"`
}

type chartRepeat struct {
	Variant string  `json:"variant"`
	Class   string  `json:"cls"`
	P       float64 `json:"p"`
	// Points are repeat (from 1) and ns.
	Points [][2]int64 `json:"points"`
}

type chartRatio struct {
	Name     string    `json:"name"`
	Class    string    `json:"cls"`
	Points   []float64 `json:"points"`
	Estimate float64   `json:"estimate"`
	Low      float64   `json:"low"`
	High     float64   `json:"high"`
}

func chartData(r *Result) chartFile {
	// Empty rather than null: the script iterates over all of them.
	f := chartFile{Goal: r.Setup.Goal, Curves: []chartCurve{}, Repeats: []chartRepeat{}, Ratios: []chartRatio{}}
	for _, l := range r.Summary.Latency {
		f.Curves = append(f.Curves, chartCurve{Name: l.Variant, Class: class(l.Variant), Steps: l.Curve})
	}
	if len(r.Summary.FloorCurve) > 0 {
		f.Curves = append(f.Curves, chartCurve{Name: "host noise floor", Class: "floor", Floor: true, Steps: r.Summary.FloorCurve})
	}
	for _, v := range r.Variants {
		for _, p := range judged {
			c := chartRepeat{Variant: v.Name, Class: class(v.Name), P: p}
			for _, run := range r.runs(v.Name) {
				if ns, err := stats.Percentile(run.Load.Latency, p); err == nil {
					c.Points = append(c.Points, [2]int64{int64(run.Repeat) + 1, ns})
				}
			}
			f.Repeats = append(f.Repeats, c)
		}
	}
	for _, t := range r.Summary.Ratios {
		if t.Ratio == nil {
			continue
		}
		c := chartRatio{Name: fmt.Sprintf("%s %s", t.Variant, percentile(t.P)), Class: class(t.Variant),
			Estimate: t.Ratio.Estimate, Low: t.Ratio.Low, High: t.Ratio.High}
		for _, p := range t.Pairs {
			c.Points = append(c.Points, float64(p.Variant)/float64(p.Base))
		}
		f.Ratios = append(f.Ratios, c)
	}
	return f
}

// heat maps v to 0..1 on a log scale of two decades below top.
func heat(v, top int64) float64 {
	if v <= 0 || top <= 0 {
		return 0
	}
	return math.Min(1, math.Max(0, 1+math.Log10(float64(v)/float64(top))/2))
}

func hostLine(r *Result) string {
	e := r.Environment
	release, _, _ := strings.Cut(e.Kernel, " ")
	s := fmt.Sprintf("%s, %d processors, kernel %s", e.CPUModel, e.CPUs, release)
	switch {
	case strings.HasPrefix(e.Virtualisation, "virtual machine"):
		s += ", " + e.Virtualisation
	case e.Virtualisation != "":
		s += ", virtual machine (" + e.Virtualisation + ")"
	}
	return s
}

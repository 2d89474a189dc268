// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/simulate"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
)

// TestFiles: each file of each sweep is a lanes file, and all its lanes get requests.
func TestFiles(t *testing.T) {
	for _, s := range sweeps() {
		for _, c := range s.cases {
			for _, x := range s.values {
				if !c.lanes {
					continue
				}
				in, err := config.Parse("lanes.yaml", []byte(c.file(x)))
				must.Do(t, err)
				setup, err := simulate.Make(in, simulate.Options{Link: 1e9, Noise: 900, Queues: 32})
				must.Do(t, err)
				for _, l := range setup.Lanes {
					if l.Missing != "" {
						t.Errorf("%s, %s at %g: lane %s: %s", s.title, c.name, x, l.Name, l.Missing)
					}
				}
			}
		}
		if !s.cases[len(s.cases)-1].lanes {
			t.Errorf("%s: the last case has no lanes, so there is no run for those without", s.title)
		}
	}
}

// TestPage: a case without lanes has the other side of the last case's runs, and a point has the range
// of its seeds.
func TestPage(t *testing.T) {
	p := &points{sweep: sweep{title: "x", cases: pair, values: []float64{1}}, results: map[point]*simulate.Result{}}
	for seed := range seeds {
		side := func(ns int64) *simulate.Side { return &simulate.Side{P50: ns, P99: 2 * ns} }
		r := &simulate.Result{Lanes: []simulate.LaneResult{
			{AsItIs: side(int64(100 + seed)), WithLanes: side(int64(10 + seed))},
			{AsItIs: side(150), WithLanes: side(5)},
			{AsItIs: side(1e9), WithLanes: side(1e9)}, // the default lane
		}}
		r.AsItIs.NoiseOut, r.WithLanes.NoiseOut = 7, 6
		p.set(point{whole.name, 1, seed}, r)
	}
	got := map[string]string{}
	for _, m := range p.page().Measures {
		got[m.Name] = fmt.Sprint(m.Values)
	}
	for name, want := range map[string]string{
		"P50": fmt.Sprint([][]page.Range{{{Median: 150, Low: 150, High: 150}}, {{Median: 11, Low: 10, High: 12}}}),
		"P99": fmt.Sprint([][]page.Range{{{Median: 300, Low: 300, High: 300}}, {{Median: 22, Low: 20, High: 24}}}),
		"other traffic from the host": fmt.Sprint([][]page.Range{{{Median: 7, Low: 7, High: 7}},
			{{Median: 6, Low: 6, High: 6}}}),
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
}

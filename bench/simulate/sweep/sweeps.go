// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/simulate"
)

// A sweep varies one setting of simulations.
type sweep struct {
	title, axis string
	text        []string
	unit        page.Unit
	log         bool
	cases       []kase
	values      []float64
	// args are the arguments of niclane simulate at a value.
	args func(x float64) []string
}

// A kase is what is compared: the host without lanes, or a lanes file, which can depend on the value.
type kase struct {
	name  string
	lanes bool
	file  func(x float64) string
}

// lane returns a file with one lane, with keys for the default lane and for this one.
func lane(globals, keys string) func(float64) string {
	text := "version: 1\nglobals: {dev: lane0, rank: 7" + globals + "}\nlanes:\n  app: {queues: 2, ports: 11211" +
		keys + "}\n"
	return func(float64) string { return text }
}

// several returns a file with x lanes of one queue that share guarantees of 60 % of the link.
func several(x float64) string {
	var b strings.Builder
	b.WriteString("version: 1\nglobals: {dev: lane0, rank: 7}\nlanes:\n")
	for i := range int(x) {
		fmt.Fprintf(&b, "  lane%d: {queues: 1, ports: %d, rank: 1, guarantee: %.1f%%}\n", i, 20000+i, 60/x)
	}
	return b.String()
}

// members returns a file with one lane of x members.
func members(x float64) string {
	var b strings.Builder
	b.WriteString("version: 1\nglobals: {dev: lane0, rank: 7}\nlanes:\n  app:\n    mode: shared\n    queues: 2\n    " +
		"rank: 1\n    guarantee: 10%\n    members:\n")
	for i := range int(x) {
		fmt.Fprintf(&b, "      - {name: m%d, ports: %d, addrs: 10.77.0.1}\n", i, 20000+i)
	}
	return b.String()
}

var (
	asItIs = kase{name: "the host as it is"}
	whole  = kase{"rank 1 and a guarantee of 10 %", true, lane("", ", rank: 1, guarantee: 10%")}
	pair   = []kase{asItIs, whole}
)

// sweeps are what the page shows.
func sweeps() []sweep {
	return []sweep{
		{
			title: "Noise", axis: "other traffic, share of the link that it asks for", unit: page.Share,
			text: []string{"A guarantee bounds the wait at any load. A rank alone does not: HTB first serves each " +
				"class within its own rate, and that of the default lane is what no lane is guaranteed. At a full " +
				"link, a lane without a guarantee has 1/1000 of it. A guarantee of the default lane takes the place " +
				"of the rest, and then the rank counts.",
				"Noise that asks for more than the link has comes in 16 flows, and fills the switch's buffer " +
					"toward the host: no lane changes that wait."},
			cases: []kase{asItIs,
				{"rank 1", true, lane("", ", rank: 1")},
				{"rank 1, other traffic is guaranteed 10 %", true, lane(", guarantee: 10%", ", rank: 1")},
				{"a guarantee of 10 %", true, lane("", ", rank: 7, guarantee: 10%")},
				whole,
			},
			values: []float64{0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1, 1.1, 1.2},
			args:   func(x float64) []string { return []string{"--link", "1gbit", "--noise", percent(x)} },
		},
		{
			title: "The switch's buffer", axis: "buffer of the switch's port to the host", unit: page.Bytes, log: true,
			text: []string{"Other traffic asks for 120 % of the link, in 16 flows. What waits at the switch toward " +
				"the host, no lane of the host changes. A deeper buffer loses less and keeps requests longer."},
			cases:  pair,
			values: []float64{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20},
			args: func(x float64) []string {
				buffer := fmt.Sprintf("%dKiB", int(x)>>10)
				return []string{"--link", "1gbit", "--noise", "120%", "--switch-buffer", buffer}
			},
		},
		{
			title: "The link's rate", axis: "rate of the link", unit: page.Bits, log: true,
			text: []string{"Other traffic asks for 90 % of the link. Waiting shrinks as the link gets faster, with a " +
				"lane and without."},
			cases:  pair,
			values: []float64{1e9, 2.5e9, 5e9, 10e9, 25e9, 40e9, 100e9},
			args: func(x float64) []string {
				return []string{"--link", fmt.Sprintf("%dmbit", int(x/1e6)), "--noise", "90%"}
			},
		},
		{
			title: "The number of lanes", axis: "lanes, which share guarantees of 60 % of the link", unit: page.Count,
			text: []string{"Each lane has a queue, rank 1, its part of the guarantees, and requests of its own. The " +
				"slowest of the lanes is shown."},
			cases:  []kase{asItIs, {"lanes of rank 1", true, several}},
			values: []float64{1, 2, 4, 8, 12, 15},
			args: func(x float64) []string {
				// Each lane needs 10,000 requests for P99.9, and all share 25,000 in a second.
				return []string{"--link", "1gbit", "--noise", "90%", "--queues", "32", "--for",
					fmt.Sprintf("%dms", int((x+1)*450))}
			},
		},
		{
			title: "The number of members", axis: "members of the lane, each with a port", unit: page.Count, log: true,
			text:   []string{"Members decide which packets are the lane's. They do not change how these wait."},
			cases:  []kase{asItIs, {"one lane of rank 1", true, members}},
			values: []float64{1, 10, 100, 1000},
			args:   func(float64) []string { return []string{"--link", "1gbit", "--noise", "90%"} },
		},
	}
}

func percent(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }

// seeds is the number of runs of each point. Which flows share a queue depends on the seed.
const seeds = 3

// A point is a run: a case at a value, with a seed.
type point struct {
	kase  string
	value float64
	seed  int
}

// points are the results of a sweep.
type points struct {
	sweep
	sync.Mutex
	results map[point]*simulate.Result
}

func (p *points) set(at point, r *simulate.Result) {
	p.Lock()
	defer p.Unlock()
	p.results[at] = r
}

// over returns the range of a value over the runs that have a case at a value of the setting.
func (p *points) over(c kase, x float64, of func(r *simulate.Result, lanes bool) int64) page.Range {
	from := c
	if !c.lanes { // the other side of the last case's runs
		from = p.cases[len(p.cases)-1]
	}
	var values []float64
	for seed := range seeds {
		values = append(values, float64(of(p.results[point{from.name, x, seed}], c.lanes)))
	}
	slices.Sort(values)
	return page.Range{Median: values[len(values)/2], Low: values[0], High: values[len(values)-1]}
}

// slowest returns the largest latency of the lanes at a percentile; 0 if there is none.
func slowest(r *simulate.Result, lanes bool, percentile func(*simulate.Side) int64) (ns int64) {
	for _, l := range r.Lanes[:len(r.Lanes)-1] {
		side := l.AsItIs
		if lanes {
			side = l.WithLanes
		}
		ns = max(ns, percentile(side))
	}
	return ns
}

// page returns what the page shows of a sweep.
func (p *points) page() page.Sweep {
	s := page.Sweep{Title: p.title, Text: p.text, Axis: p.axis, Unit: p.unit, Log: p.log, Values: p.values}
	for _, c := range p.cases {
		s.Cases = append(s.Cases, page.Case{Name: c.name, Lanes: c.lanes})
	}
	measure := func(name string, unit page.Unit, of func(r *simulate.Result, lanes bool) int64) {
		m := page.Measure{Name: name, Unit: unit}
		for _, c := range p.cases {
			var line []page.Range
			for _, x := range p.values {
				line = append(line, p.over(c, x, of))
			}
			m.Values = append(m.Values, line)
		}
		s.Measures = append(s.Measures, m)
	}
	latency := func(name string, percentile func(*simulate.Side) int64) {
		measure(name, page.Time, func(r *simulate.Result, lanes bool) int64 { return slowest(r, lanes, percentile) })
	}
	shared := func(name string, of func(simulate.Shared) int64) {
		measure(name, page.Bits, func(r *simulate.Result, lanes bool) int64 {
			if lanes {
				return of(r.WithLanes)
			}
			return of(r.AsItIs)
		})
	}
	latency("P50", func(s *simulate.Side) int64 { return s.P50 })
	latency("P99", func(s *simulate.Side) int64 { return s.P99 })
	latency("P99.9", func(s *simulate.Side) int64 { return s.P999 })
	shared("other traffic from the host", func(s simulate.Shared) int64 { return s.NoiseOut })
	shared("other traffic to the host", func(s simulate.Shared) int64 { return s.NoiseIn })
	return s
}

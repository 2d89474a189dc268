// SPDX-License-Identifier: Apache-2.0

package result

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/stats"
)

// A Comparison compares two runs, A and B.
type Comparison struct {
	A RunID `json:"a"`
	B RunID `json:"b"`
	// Environment and Experiment list the differences between the runs. Each difference may be the
	// cause of a ratio.
	Environment []Change          `json:"environment"`
	Experiment  []Change          `json:"experiment"`
	Points      []PointComparison `json:"points"`
	// Only lists what only one of the two runs has.
	Only  []string `json:"only,omitempty"`
	Notes []string `json:"notes"`

	a, b *Summary
}

// Summaries returns the summaries of the two runs.
func (c *Comparison) Summaries() (a, b *Summary) { return c.a, c.b }

// RunID identifies a run.
type RunID struct {
	Title   string    `json:"title"`
	Niclane string    `json:"niclane"`
	Started time.Time `json:"started"`
	Virtual bool      `json:"virtual,omitempty"`
	Partial *Partial  `json:"partial,omitempty"`
}

// A PointComparison is a load point that both runs have.
type PointComparison struct {
	Name     string              `json:"name"`
	Variants []VariantComparison `json:"variants"`
}

// VariantComparison is a variant that both runs have.
type VariantComparison struct {
	Name        string  `json:"name"`
	Percentiles []TwoOf `json:"percentiles"`
	Achieved    RateTwo `json:"achieved"`
	// ServerCPU is the server's processor time per request in ns; nil if a run does not know it.
	ServerCPU *RateTwo   `json:"serverCPUNs,omitempty"`
	Noise     []NoiseTwo `json:"noise,omitempty"`
	Base      bool       `json:"base,omitempty"` // base of comparison in both runs
}

// TwoOf is a percentile of both runs.
type TwoOf struct {
	P        float64         `json:"p"`
	A        *stats.Estimate `json:"a,omitempty"`
	B        *stats.Estimate `json:"b,omitempty"`
	MissingA string          `json:"missingA,omitempty"`
	MissingB string          `json:"missingB,omitempty"`
	// Ratio is B divided by A. BesideBase first divides each run's value by that of the run's own
	// base, and then B by A. So effects that all variants of a run share cancel.
	Ratio      *Judged `json:"ratio,omitempty"`
	BesideBase *Judged `json:"besideBase,omitempty"`
}

// Judged is a ratio, with a statement whether noise may explain it.
type Judged struct {
	stats.Ratio
	Difference stats.Difference `json:"difference"`
}

// RateTwo is a rate in both runs, over all windows.
type RateTwo struct {
	A     float64 `json:"a"`
	B     float64 `json:"b"`
	Ratio *Judged `json:"ratio,omitempty"`
}

// NoiseTwo is one direction of the noise in both runs.
type NoiseTwo struct {
	Direction string `json:"direction"`
	RateTwo
}

// incomparable lists keys of an experiment. Runs that differ in one of them measured different
// things.
var incomparable = []string{"server.kind", "server.command", "workload", "load.mode", "load.arrivals", "load.pipeline"}

// Compare compares two runs that were measured at different times. It compares load points and
// variants that have the same name. It refuses runs of different servers or workloads, and runs
// that have no load point or no variant in common. Only if mixed, it takes a run in virtual time and
// one that was not.
func Compare(a, b *Result, mixed bool) (*Comparison, error) {
	if a.Virtual != b.Virtual && !mixed {
		return nil, fmt.Errorf("%s, and %s: their difference is the processor time of real work, not a change; "+
			"want both in virtual time or neither, or --mixed to see them side by side", timeOf("A", a), timeOf("B", b))
	}
	c := &Comparison{
		A:           RunID{a.Title, a.Niclane, a.Started, a.Virtual, a.Partial},
		B:           RunID{b.Title, b.Niclane, b.Started, b.Virtual, b.Partial},
		Environment: environmentChanges(a, b),
		Notes: []string{
			"measured apart: changes of the host between the runs affect the ratios, but not their intervals",
		},
	}
	if a.Virtual || b.Virtual {
		c.Notes = virtualNotes(a, b)
	}
	var errs []string
	for _, x := range changes(a.Experiment, b.Experiment, "source", "title") {
		if slices.ContainsFunc(incomparable,
			func(p string) bool { return x.Path == p || strings.HasPrefix(x.Path, p+".") }) {
			errs = append(errs, x.String())
		}
		// The names of the load points already show these differences.
		if !strings.HasPrefix(x.Path, "load.connections") && !strings.HasPrefix(x.Path, "load.rates") {
			c.Experiment = append(c.Experiment, x)
		}
	}
	if a.Server.Kind != b.Server.Kind && a.Server.Kind != "" && b.Server.Kind != "" {
		errs = append(errs, fmt.Sprintf("server measured: %s → %s", a.Server.Kind, b.Server.Kind))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("not the same experiment: %s; want runs of one server and workload",
			strings.Join(errs, "; "))
	}
	c.lanes(a, b)
	c.compare(a, b)
	if len(c.Points) == 0 {
		return nil, errors.New("nothing to compare: no load point with a variant that both runs have; " +
			strings.Join(c.Only, "; "))
	}
	for _, p := range c.Points {
		for _, v := range p.Variants {
			for _, x := range v.Percentiles {
				if v.Base && x.Ratio != nil && x.Ratio.Difference.Text != stats.Same {
					c.Notes = append(c.Notes, fmt.Sprintf("%s: %s of %s, the base, itself changed by %s: for "+
						"the other "+
						"variants, look at the ratio beside the base", p.Name, PercentileText(x.P), v.Name,
						x.Ratio.Difference.Text))
				}
			}
		}
	}
	return c, nil
}

func environmentChanges(a, b *Result) []Change {
	type all struct {
		Niclane     string      `json:"niclane"`
		Environment Environment `json:"environment"`
		Server      Server      `json:"server"`
	}
	// The device and the addresses of a lab differ in each run.
	out := changes(all{a.Niclane, a.Environment, a.Server}, all{b.Niclane, b.Environment, b.Server},
		"environment.network.lab", "server.address", "server.proof")
	for i := range out {
		out[i].Path = strings.TrimPrefix(out[i].Path, "environment.")
	}
	// Clock offsets differ after each boot.
	out = slices.DeleteFunc(out, func(c Change) bool {
		return strings.HasSuffix(c.Path, ".clockAheadNs") || strings.HasSuffix(c.Path, ".clockUncertaintyNs")
	})
	// The most important differences must come first.
	first := []string{"kernel", "niclane", "cpuModel", "cpus", "virtualisation", "governor", "server.version"}
	rank := func(c Change) int {
		if i := slices.Index(first, c.Path); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(out, func(x, y Change) int { return rank(x) - rank(y) })
	return out
}

// lanes notes variants whose lanes or plans differ although the experiment is the same.
func (c *Comparison) lanes(a, b *Result) {
	for _, v := range a.Variants {
		i := slices.IndexFunc(b.Variants, func(o Variant) bool { return o.Name == v.Name })
		if i < 0 {
			continue
		}
		said := slices.ContainsFunc(c.Experiment,
			func(x Change) bool { return strings.HasPrefix(x.Path, "variants."+v.Name+".lanes") })
		switch o := b.Variants[i]; {
		case v.Lanes != o.Lanes && !said:
			c.Experiment = append(c.Experiment, Change{"lanes of " + v.Name, v.Lanes, o.Lanes})
		case v.Lanes == o.Lanes && v.Plan != o.Plan && v.Plan != "" && o.Plan != "":
			c.Experiment = append(c.Experiment, Change{"plan of " + v.Name, v.Plan, o.Plan})
		}
	}
}

func (c *Comparison) compare(a, b *Result) {
	c.a, c.b = Summarize(a), Summarize(b)
	x, y := c.a, c.b
	only := func(run, format string, args ...any) {
		c.Only = append(c.Only, "only in "+run+": "+fmt.Sprintf(format, args...))
	}
	// All ratios are judged together. If they were judged in groups, each would look too certain.
	var f judging
	for i, p := range x.Points {
		j := slices.IndexFunc(y.Points, func(o PointSummary) bool { return o.Name == p.Name })
		if j < 0 {
			only("A", "load point %s", p.Name)
			continue
		}
		q := y.Points[j]
		point := PointComparison{Name: p.Name}
		for _, v := range p.Variants {
			k := slices.IndexFunc(q.Variants, func(o VariantSummary) bool { return o.Name == v.Name })
			if k < 0 {
				only("A", "variant %s at %s", v.Name, p.Name)
				continue
			}
			t := VariantComparison{Name: v.Name, Base: v.Name == p.Base && p.Base == q.Base}
			for _, s := range v.Percentiles {
				if o := at(q.Variants[k].Percentiles, s.P); o.Estimate != nil || o.Missing != "" {
					t.Percentiles = append(t.Percentiles, f.two(s, o, p.Base == q.Base))
				}
			}
			t.Achieved, t.Noise = f.rates(a.windows(i, v.Name), b.windows(j, v.Name), v, q.Variants[k])
			if x, y := v.ServerCPU, q.Variants[k].ServerCPU; x > 0 && y > 0 {
				t.ServerCPU = &RateTwo{A: x, B: y, Ratio: f.rate(a.windows(i, v.Name), b.windows(j, v.Name),
					func(w *Window) float64 { return float64(w.serverCPU()) / 1000 })}
			}
			point.Variants = append(point.Variants, t)
		}
		for _, v := range q.Variants {
			if !slices.ContainsFunc(p.Variants, func(o VariantSummary) bool { return o.Name == v.Name }) {
				only("B", "variant %s at %s", v.Name, p.Name)
			}
		}
		if len(point.Variants) > 0 {
			c.Points = append(c.Points, point)
		}
	}
	for _, p := range y.Points {
		if !slices.ContainsFunc(x.Points, func(o PointSummary) bool { return o.Name == p.Name }) {
			only("B", "load point %s", p.Name)
		}
	}
	f.judge()
}

// judging collects ratios that are judged together.
type judging struct {
	members []stats.Comparison
	judged  []*Judged
}

func (f *judging) add(r stats.Ratio, err error) *Judged {
	if err != nil {
		return nil
	}
	j := &Judged{Ratio: r}
	f.members, f.judged = append(f.members, stats.Comparison{Ratio: r}), append(f.judged, j)
	return j
}

func (f *judging) judge() {
	for i, d := range stats.Compare(f.members) {
		f.judged[i].Difference = d
	}
}

func (f *judging) two(a, b Percentile, sameBase bool) TwoOf {
	t := TwoOf{P: a.P, A: a.Estimate, B: b.Estimate, MissingA: a.Missing, MissingB: b.Missing}
	if a.Estimate != nil && b.Estimate != nil {
		t.Ratio = f.add(stats.UnpairedRatio(*b.Estimate, *a.Estimate))
	}
	if sameBase && a.Ratio != nil && b.Ratio != nil {
		t.BesideBase = f.add(stats.UnpairedRatio(asEstimate(*b.Ratio, a.P), asEstimate(*a.Ratio, a.P)))
	}
	return t
}

// asEstimate converts a ratio to an estimate with an interval. The unit is 1/1,000,000.
func asEstimate(r stats.Ratio, p float64) stats.Estimate {
	of := func(v float64) int64 { return int64(math.Round(v * 1e6)) }
	return stats.Estimate{Percentile: p, Value: of(r.Estimate), Low: of(min(r.Low, r.Estimate)),
		High: of(max(r.High, r.Estimate))}
}

// rates compares the achieved rates of load and noise. The samples are the windows.
func (f *judging) rates(a, b map[int]*Window, x, y VariantSummary) (RateTwo, []NoiseTwo) {
	achieved := RateTwo{A: x.Achieved, B: y.Achieved}
	achieved.Ratio = f.rate(a, b, func(w *Window) float64 {
		return float64(w.Load.Completed) / float64(w.Load.Duration) * 1e9
	})
	var noise []NoiseTwo
	for _, n := range x.Noise {
		i := slices.IndexFunc(y.Noise, func(o NoiseSummary) bool { return o.Direction == n.Direction })
		if i < 0 {
			continue
		}
		t := NoiseTwo{Direction: n.Direction, RateTwo: RateTwo{A: n.Achieved, B: y.Noise[i].Achieved}}
		t.Ratio = f.rate(a, b, func(w *Window) float64 {
			sum := 0.0
			for _, o := range w.Noise {
				if o.Direction == n.Direction {
					sum += float64(o.Achieved)
				}
			}
			return sum
		})
		noise = append(noise, t)
	}
	return achieved, noise
}

// rate compares the windows' values of two runs; nil if a run has fewer than two windows. For each
// run it computes the middle of its windows with an interval, by PairedRatio with a constant.
func (f *judging) rate(a, b map[int]*Window, of func(*Window) float64) *Judged {
	side := func(windows map[int]*Window) (stats.Estimate, error) {
		var pairs []stats.Pair
		for _, i := range rounds(windows) {
			pairs = append(pairs, stats.Pair{Variant: int64(math.Round(of(windows[i]) * 1000)), Base: 1e6})
		}
		r, err := stats.PairedRatio(pairs)
		return asEstimate(r, 0), err
	}
	x, err1 := side(a)
	y, err2 := side(b)
	if err := errors.Join(err1, err2); err != nil {
		return nil
	}
	return f.add(stats.UnpairedRatio(y, x))
}

// timeOf says which time a run is of.
func timeOf(name string, r *Result) string {
	if r.Virtual {
		return name + " is of virtual time"
	}
	return name + " is of real time"
}

// virtualNotes returns the notes of a comparison with a run in virtual time, which no host changes.
func virtualNotes(a, b *Result) []string {
	if a.Virtual == b.Virtual {
		return []string{VirtualText}
	}
	return []string{timeOf("A", a) + ", " + timeOf("B", b) + ": " + VirtualText}
}

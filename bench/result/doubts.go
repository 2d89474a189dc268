// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/check"
)

// doubts returns the doubts about a load point: the results of all checks, and the generators' own
// warnings. few are doubts about comparisons; "" is none.
func (r *Result) doubts(point int, few ...string) []Doubt {
	var out doubts
	name := r.Points[point].Name()
	add := func(variant string, warnings []check.Warning) {
		for _, w := range warnings {
			out.add(w.Text, Where{Point: name, Variant: variant}, -1)
		}
	}
	base := r.windows(point, r.Experiment.Base)
	for _, v := range r.Variants {
		windows := r.windows(point, v.Name)
		if len(windows) == 0 {
			continue
		}
		for _, text := range few {
			if text != "" && v.Name != r.Experiment.Base {
				out.add(text, Where{Point: name, Variant: v.Name}, -1)
			}
		}
		switch r.Points[point].Mode {
		case Live: // there is no generator
		case load.Closed:
			add(v.Name, append(r.client(windows), r.little(r.Points[point], windows)...))
		default:
			add(v.Name, append(r.client(windows), r.arrivals(r.Points[point], windows)...))
		}
		if len(r.HostNoise) > 0 && v.Name != r.Experiment.Base && len(base) > 0 {
			add(v.Name, r.hostNoise(windows, base))
		}
		for _, i := range rounds(windows) {
			at := Where{Point: name, Variant: v.Name, Of: len(windows)}
			for _, text := range windows[i].doubts() {
				out.add(text, at, i)
			}
		}
	}
	return out.list
}

// doubts returns the doubts about a single window.
func (w *Window) doubts() (out []string) {
	out = slices.Concat(w.Warnings, w.Load.Warnings)
	if w.Load.FirstError != "" {
		out = append(out, "first error: "+w.Load.FirstError)
	}
	if n := w.Load.Latency.Clamped(); n > 0 {
		out = append(out, fmt.Sprintf("%d latencies above the histogram's limit (137 s) count as 137 s", n))
	}
	for _, p := range w.Power {
		for _, text := range p.Warnings {
			out = append(out, "power by "+p.Provenance.Source+": "+text)
		}
	}
	return append(out, w.noiseDoubts()...)
}

func merged(windows map[int]*Window, of func(*load.Result) *stats.Histogram) *stats.Histogram {
	var all []*stats.Histogram
	for _, i := range rounds(windows) {
		all = append(all, of(&windows[i].Load))
	}
	return stats.Merge(all...)
}

// client checks whether the generator itself made the measured latency longer.
func (r *Result) client(windows map[int]*Window) []check.Warning {
	generators := int64(max(1, r.Experiment.Load.Generators))
	c := check.Client{
		Own:     merged(windows, func(l *load.Result) *stats.Histogram { return l.Wakeup }),
		Latency: merged(windows, func(l *load.Result) *stats.Histogram { return l.Latency }),
		Spins:   r.Experiment.Load.Spin > 0,
	}
	for _, w := range windows {
		c.CPUTime += w.Load.CPUTime / generators
		c.Duration += w.Load.Duration
	}
	return check.Saturated(c)
}

// little checks a closed loop by Little's law: requests in flight = rate × latency.
func (r *Result) little(p Point, windows map[int]*Window) []check.Warning {
	latency := merged(windows, func(l *load.Result) *stats.Histogram { return l.Latency })
	var completed, duration int64
	for _, w := range windows {
		completed += w.Load.Completed
		duration += w.Load.Duration
	}
	inFlight := float64(p.Connections * max(1, r.Experiment.Load.Pipeline))
	if n := float64(len(windows)); float64(completed) < inFlight*n {
		return []check.Warning{{Check: "short-windows", Text: fmt.Sprintf(
			"windows of %s are too short: %.0f requests were in flight and %.1f were answered in each, so rate and "+
				"latency cover only the quickest",
			time.Duration(duration/int64(len(windows))).Round(time.Millisecond), inFlight, float64(completed)/n)}}
	}
	return check.Little(inFlight, float64(completed)/float64(duration)*1e9, latency.Mean())
}

// arrivals compares the times of the actual sends with the intended ones.
func (r *Result) arrivals(p Point, windows map[int]*Window) []check.Warning {
	process := check.Constant
	if r.Experiment.Load.Arrivals == load.Poisson {
		process = check.Poisson
	}
	var sends []int64
	for _, i := range rounds(windows) {
		sends = append(sends, windows[i].Load.Sends...)
	}
	gaps := merged(windows, func(l *load.Result) *stats.Histogram { return l.Gaps })
	each := p.Rate / float64(max(1, r.Experiment.Load.Generators)) // gaps are counted per generator
	return append(check.Gaps(process, each, gaps), check.Dispersion(process, sends)...)
}

// hostNoise compares the host's own noise with the difference between two variants. It takes the
// highest percentile that both variants' samples can support.
func (r *Result) hostNoise(windows, base map[int]*Window) (out []check.Warning) {
	latency := func(l *load.Result) *stats.Histogram { return l.Latency }
	a, b := merged(windows, latency), merged(base, latency)
	p, effect := 0.0, int64(0)
	for _, q := range usual {
		x, err1 := stats.Percentile(a, q)
		y, err2 := stats.Percentile(b, q)
		if err1 == nil && err2 == nil {
			p, effect = q, int64(math.Abs(float64(x-y)))
		}
	}
	if p == 0 || effect == 0 {
		return nil
	}
	for _, h := range r.HostNoise {
		host := check.Host{Autogroup: h.Host.Autogroup}
		for _, c := range h.CPUs {
			host.CPUs = append(host.CPUs, check.CPU{CPU: c.CPU, Late: c.Late, Steal: c.Steal, Busy: c.Busy,
				Total: c.Total})
		}
		for _, b := range h.Host.Busy {
			host.Others = append(host.Others, b.Name)
		}
		out = append(out, check.HostNoise(host, p, effect)...)
	}
	return out
}

// noiseShort is the least share of its requested rate that noise must reach.
const noiseShort = 0.9

func (w *Window) noiseDoubts() (out []string) {
	for _, n := range w.Noise {
		way := Way(n.Direction)
		if n.Asked > 0 && float64(n.Achieved) < noiseShort*float64(n.Asked) {
			out = append(out, fmt.Sprintf("noise %s did not reach %.0f %% of the rate asked for, %s", way,
				100*noiseShort, BitsText(float64(n.Asked))))
		}
		for _, text := range slices.Concat(n.Sender.Warnings, n.Receiver.Warnings) {
			// This warning of the sender is about its whole run. The warning above is about the counted time
			// only, which is what matters.
			if !strings.HasPrefix(text, "goodput ") {
				out = append(out, "noise "+way+": "+text)
			}
		}
	}
	return out
}

// Way renders a direction of noise as words.
func Way(direction string) string {
	if direction == experiment.FromSUT {
		return "from the SUT"
	}
	return "to the SUT"
}

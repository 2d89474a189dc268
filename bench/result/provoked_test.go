// SPDX-License-Identifier: Apache-2.0

package result

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/statstest"
)

// sent sets the send times of w's requests, by the gaps between them in ns, and the numbers of
// requests sent in each 100 ms.
func sent(w *Window, gap func() float64) {
	l := &w.Load
	l.Gaps, l.Sends = stats.NewHistogram(), make([]int64, l.Duration/100e6)
	for at := 0.0; ; {
		g := gap()
		if at += g; int64(at) >= l.Duration {
			return
		}
		l.Gaps.Record(int64(g))
		l.Sends[int64(at)/100e6]++
	}
}

// quiet returns the measurement of a host that delays no thread.
func quiet() hiccup.Result {
	return hiccup.Result{Duration: 1e9, CPUs: []hiccup.CPU{{CPU: 3, Late: statstest.Equal(100_000, 1000), Total: 1e9}},
		Host: hiccup.Host{Autogroup: "on"}}
}

// TestEveryCheckIsProvoked starts from a result without doubts and causes each doubt once.
func TestEveryCheckIsProvoked(t *testing.T) {
	const mean = 1e9 / 2000
	random := rand.New(rand.NewPCG(1, 2))
	constant := func() float64 { return mean * (0.98 + 0.04*random.Float64()) }
	poisson := func() float64 { return mean * random.ExpFloat64() }
	// Five requests leave together, after a pause that is as long as five gaps.
	n := 0
	bursts := func() float64 {
		if n++; n%5 > 0 {
			return 1000
		}
		return 5 * mean
	}
	at := 0.0
	// The gaps are right, except for one long pause in four windows. The requests of the pause follow
	// at once.
	pauses := func() float64 {
		at++
		switch k := int(at) % 800; {
		case k == 0:
			return 100 * mean
		case k < 100:
			return 10
		}
		return mean
	}
	for _, tt := range []struct {
		name  string
		spoil func(r *Result)
		want  string // text of the doubt; "": none
	}{
		{"nothing", func(*Result) {}, ""},
		{"Poisson", func(r *Result) {
			r.Experiment.Load.Arrivals = load.Poisson
			every(r, func(w *Window) { sent(w, poisson) })
		}, ""},
		{"two generators", func(r *Result) {
			r.Experiment.Load.Generators = 2
			every(r, func(w *Window) { // two generators send half of the requests each
				sent(w, func() float64 { return 2 * constant() })
				l := w.Load
				sent(w, func() float64 { return 2 * constant() })
				w.Load.Gaps = stats.Merge(l.Gaps, w.Load.Gaps)
				for i, n := range l.Sends {
					w.Load.Sends[i] += n
				}
			})
		}, ""},
		{"off a constant schedule", func(r *Result) { every(r, func(w *Window) { sent(w, bursts) }) },
			"gaps between sends are more than 10 % off 500µs: the generator did not keep its constant schedule"},
		{"constant, not Poisson", func(r *Result) { r.Experiment.Load.Arrivals = load.Poisson },
			"gaps between sends are not exponential with mean 500µs"},
		{"pauses", func(r *Result) { every(r, func(w *Window) { sent(w, pauses) }) },
			"sends of 100 windows have an index of dispersion of "},
		{"client late", func(r *Result) {
			every(r, func(w *Window) { w.Load.Wakeup = w.Load.Latency })
		}, "P50 is the generator's own delay: it noticed requests "},
		{"client busy", func(r *Result) { every(r, func(w *Window) { w.Load.CPUTime = 95e7 }) },
			"the generator used 95 % of its processor: it is saturated"},
		{"Little's law", func(r *Result) {
			r.Points[0].Mode, r.Points[0].Rate = load.Closed, 0
		}, "Little's law: 2000 requests/s × "},
		{"a floor above the effect", func(r *Result) {
			r.HostNoise[0].CPUs[0].Late = statstest.Equal(100_000, 10e6)
		}, "cpu 3 wakes a thread that only sleeps 10.002ms late (P99.9); the effect at P99.9 is "},
		{"steal", func(r *Result) { r.HostNoise[0].CPUs[0].Steal = 5e7 }, "the hypervisor took 5.0 % of cpu 3"},
		{"other load", func(r *Result) {
			r.HostNoise[0].CPUs[0].Busy = 5e8
			r.HostNoise[0].Host.Busy = []hiccup.Process{{Name: "compiler"}}
		}, "other processes used 50 % of cpu 3, most of it compiler"},
		{"autogroup", func(r *Result) { r.HostNoise[0].CPUs[0].Busy = 5e8 }, "sched_autogroup is on"},
		{"the generator's own words", func(r *Result) {
			r.Windows[0].Load.Warnings = []string{"3 of 10 connections " +
				"were lost"}
		},
			"3 of 10 connections were lost"},
		{"noise that is less", func(r *Result) {
			r.Windows[1].Noise = []Noise{{Direction: experiment.FromSUT, Asked: 4e8, Achieved: 2e8}}
		},
			"noise from the SUT did not reach 90 % of the rate asked for, 400"},
		{"what an end of the noise says", func(r *Result) {
			r.Windows[1].Noise = []Noise{{Direction: experiment.ToSUT,
				Receiver: noise.Result{Warnings: []string{"a flow ended early: EOF"}}}}
		}, "noise to the SUT: a flow ended early: EOF"},
		{"what a power source says", func(r *Result) {
			r.Windows[1].Power = []power.Result{{Provenance: power.Provenance{Source: power.RAPL},
				Warnings: []string{"the sensor is too coarse"}}}
		}, "power by rapl: the sensor is too coarse"},
		{"a request that failed", func(r *Result) { r.Windows[1].Load.FirstError = "SERVER_ERROR out of memory" },
			"first error: SERVER_ERROR out of memory"},
		{"beyond the histogram", func(r *Result) {
			h := stats.Merge(r.Windows[1].Load.Latency)
			h.Record(1 << 40)
			r.Windows[1].Load.Latency = h
		}, "1 latencies above the histogram's limit (137 s) count as 137 s"},
		{"a clock that was set", func(r *Result) { r.Windows[1].Warnings = []string{"the clock was set by 1h0m0s"} },
			"the clock was set by 1h0m0s"},
	} {
		r := fixture()
		r.HostNoise = []hiccup.Result{quiet()}
		every(r, func(w *Window) { w.Noise = nil; sent(w, constant) })
		tt.spoil(r)
		got := Summarize(r).Points[0].Doubts
		if tt.want == "" {
			if len(got) > 0 {
				t.Errorf("%s: %v, want no doubt", tt.name, got)
			}
			continue
		}
		found := false
		for _, d := range got {
			found = found || strings.Contains(d.Text, tt.want)
		}
		if !found {
			t.Errorf("%s: %v, want %q", tt.name, got, tt.want)
		}
	}
}

func every(r *Result, f func(w *Window)) {
	for i := range r.Windows {
		f(&r.Windows[i])
	}
}

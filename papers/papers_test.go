// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/search"
	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lane/device"
)

// study has one claim of each kind.
var study = Study{
	Experiment: "made-up", Paper: "none", Lane: "lane", Bases: []string{"off", "tuned"},
	Claims: []Claim{{Measure: Percentile, P: 99, Text: "P99 half", Paper: 0.5},
		{Measure: Rate, Text: "twice the rate", Paper: 2},
		{Measure: LinkShare, Text: "80 % of the link", Paper: 0.8, Sockets: 2, PerClient: 10},
		{Measure: Mean, Text: "the mean, no figure"}},
}

// made returns a result in which each variant has the given latency (ns) and rate (requests per
// second). Each request is one byte, by the device's counters.
func made(latency map[string]int64, rate map[string]float64) *result.Result {
	r := &result.Result{
		Schema: result.Schema, Title: "made up",
		Experiment:  &experiment.Experiment{Base: "off", Load: experiment.Load{Window: 1e9}, Lab: &experiment.Lab{}},
		Points:      []result.Point{{Mode: load.Closed, Connections: 10, Rounds: 8}},
		Environment: result.Environment{Network: result.Network{LinkRate: 1e6}},
	}
	for _, name := range []string{"off", "tuned", "lane"} {
		if latency[name] == 0 {
			continue
		}
		r.Variants = append(r.Variants, result.Variant{Name: name, Title: name})
		for round := range 8 {
			rec := stats.NewRecorder(1e8, 10)
			for i := range 2000 {
				rec.Advance(i / 200)
				ns := latency[name] + int64(i%50)*latency[name]/1000 + int64(round)
				rec.Record(ns)
			}
			series := rec.Series()
			r.Windows = append(r.Windows, result.Window{
				Purpose: result.Repeat, Variant: name, Repeat: round,
				Machine: &machine.Diff{Duration: 1e9, Device: &machine.Device{
					Tx: []device.QueueCounter{{Bytes: uint64(rate[name])}}}},
				Load: load.Result{Mode: load.Closed, Duration: 1e9, Intended: 2000, Completed: int64(rate[name]),
					AchievedRate: rate[name], OfferedRate: rate[name],
					Payload: int64(rate[name]), Latency: series.Histogram(), Series: series},
			})
		}
	}
	return r
}

func TestMeasure(t *testing.T) {
	ms := int64(1e6)
	for _, tt := range []struct {
		name    string
		latency map[string]int64
		rate    map[string]float64
		want    []Verdict
		ratio   float64 // P99, as a multiple of that of off
	}{
		{"as claimed", map[string]int64{"off": 10 * ms, "tuned": 6 * ms, "lane": 4 * ms},
			map[string]float64{"off": 40_000, "tuned": 60_000, "lane": 100_000},
			[]Verdict{AsGood, AsGood, "reached, on a far slower link", NoFigure}, 0.4},
		{"less", map[string]int64{"off": 10 * ms, "tuned": 6 * ms, "lane": 8 * ms},
			map[string]float64{"off": 40_000, "tuned": 60_000, "lane": 50_000},
			[]Verdict{Less, Less, "40.0 points less", NoFigure}, 0.8},
		{"none", map[string]int64{"off": 10 * ms, "tuned": 6 * ms, "lane": 10 * ms},
			map[string]float64{"off": 50_000, "tuned": 60_000, "lane": 50_000},
			[]Verdict{NoneSeen, NoneSeen, "40.0 points less", NoneSeen}, 1},
		{"worse", map[string]int64{"off": 10 * ms, "tuned": 6 * ms, "lane": 20 * ms},
			map[string]float64{"off": 50_000, "tuned": 60_000, "lane": 25_000},
			[]Verdict{Worse, Worse, "60.0 points less", Worse}, 2},
		{"no lane", map[string]int64{"off": 10 * ms}, map[string]float64{"off": 50_000},
			[]Verdict{Unmeasured, Unmeasured, Unmeasured, Unmeasured}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Outcome{Study: study, Result: made(tt.latency, tt.rate)}
			got := o.Measure()
			for i, m := range got {
				if m.Verdict != tt.want[i] {
					t.Errorf("%s: %q, want %q (%+v)", m.Claim.Text, m.Verdict, tt.want[i], m.Against)
				}
			}
			if tt.ratio == 0 {
				return
			}
			if r := got[0].Against[0]; r.Base != "off" || r.Ratio == nil || math.Abs(r.Estimate-tt.ratio) > 0.02 {
				t.Errorf("P99 is %+v, want %v of off", r.Ratio, tt.ratio)
			}
			if r := got[0].Against[1]; r.Base != "tuned" || r.Ratio == nil ||
				math.Abs(r.Estimate-tt.ratio*10/6) > 0.05 {
				t.Errorf("P99 is %+v, want %v of tuned", r.Ratio, tt.ratio*10/6)
			}
		})
	}
}

func TestRateInSLA(t *testing.T) {
	r := made(map[string]int64{"off": 10e6, "lane": 4e6}, map[string]float64{"off": 40_000, "lane": 100_000})
	measure := func() Measured {
		o := Outcome{Study: study, Result: r}
		o.Claims = []Claim{{Measure: RateInSLA, Text: "within the SLA", Paper: 2}}
		return o.Measure()[0]
	}
	if m := measure(); m.Verdict != Unmeasured || !strings.Contains(m.Against[0].Missing, "no such SLA") {
		t.Errorf("without one: %+v", m)
	}
	r.Experiment.SLA = &experiment.SLA{Percentile: 99, At: 5e6}
	if m := measure(); m.Value != "100000/s" || m.Verdict != Unmeasured {
		t.Errorf("off is never within it: %+v", m)
	}
	r.Experiment.SLA.At = 20e6
	if m := measure(); m.Verdict != AsGood || m.Against[0].Estimate != 2.5 {
		t.Errorf("both within it: %+v", m)
	}
	r.Searches = []result.Search{
		{Variant: "lane", Config: search.Config{Goal: search.Goal{Percentile: 99, Limit: 20e6}},
			Result: &search.Result{Rate: 120_000}},
		{Variant: "off", Config: search.Config{Goal: search.Goal{Percentile: 99, Limit: 30e6}},
			Result: &search.Result{Rate: 120_000}},
		{Variant: "off", Config: search.Config{Goal: search.Goal{Percentile: 99.9, Limit: 20e6}},
			Result: &search.Result{Rate: 120_000}}}
	if m := measure(); m.Value != "120000/s" || m.Against[0].Estimate != 3 {
		t.Errorf("the search for this SLA counts, that for another does not: %+v", m)
	}
	r.Searches = nil
	r.Points[0].Rate = 106_000 // lane achieves less than 95 % of it
	if m := measure(); m.Verdict != Unmeasured || m.Value != "at no rate that was measured" {
		t.Errorf("the five-percent rule: %+v", m)
	}
}

func TestWrite(t *testing.T) {
	good := Outcome{Study: study, Result: made(map[string]int64{"off": 10e6, "tuned": 6e6, "lane": 4e6},
		map[string]float64{"off": 40_000, "tuned": 60_000, "lane": 100_000}), Report: "made-up/report.html"}
	good.Result.Experiment.Sized = []string{"sizes.lab", "sizes.quick"}
	good.WhyInLab = "because of the lab"
	for i := range good.Result.Windows {
		good.Result.Windows[i].Load.Work.Gets = 100_000
		good.Result.Windows[i].Machine = &machine.Diff{Device: good.Result.Windows[i].Machine.Device,
			Duration: 1e9, CPUs: []machine.CPU{{Idle: 5e8}, {Idle: 5e8}},
			Processes: []machine.Process{{Name: "server", Running: 4e8}},
			NAPIs:     []napi.Count{{Polls: 1000, Thread: 750, Packets: 5000}},
		}
	}
	good.Result.Windows[3].Warnings = []string{"gate client: saturated client: 97 %"}
	good.Result.Windows[4].Warnings = []string{"gate client: saturated client: 99 %"}
	failed := Outcome{Study: study, Failure: "gate hits: wrong <hit> ratio"}
	failed.Experiment = "failed"
	var b bytes.Buffer
	if err := Write(&b, []Outcome{good, failed}, "v1"); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	errtest.Has(t, "the page", text,
		"P99 half", "−50 %", "as the paper, or better", "80.0 % of the link", "quick form: shows that it runs",
		"made-up/report.html",
		"gate hits: wrong &lt;hit&gt; ratio", "saturated client: 97 % (and in 1 more windows)",
		"1 of 2 experiments were measured: 1 in quick form. Not measured: failed; each says why.",
		"10 connections, closed loop", "<td>10.0 µs</td>", "<td>80.0 %</td>",
		"75 % threads, 25 % interrupts", "because of the lab")
	errtest.Lacks(t, "what the template could not fill in", text, "ZgotmplZ", "<no value>", "NaN")
}

// TestWhere checks where the page says that studies were measured: in the lab, on hosts, or both if
// studies differ.
func TestWhere(t *testing.T) {
	const (
		inLab    = "network namespaces of one machine with an emulated card"
		onHosts  = "Measured with agents on 3 hosts: dut (sut), left (client), far (noise)"
		together = "dut, left are one machine"
		labOnly  = "other in the lab"
		differ   = "Studies ran in different environments: each study names its own."
		link     = "link of 1.00 Mbit/s"
	)
	latency, rate := map[string]int64{"off": 10e6, "lane": 4e6}, map[string]float64{"off": 40_000, "lane": 100_000}
	lab := func() Outcome {
		o := Outcome{Study: study, Result: made(latency, rate)}
		o.Differences, o.DifferencesInLab = []string{"other everywhere"}, []string{labOnly}
		return o
	}
	hosts := func(aheadNs int64) Outcome {
		o := lab()
		o.Result.Experiment.Lab, o.Result.Experiment.Hosts = nil, &experiment.Hosts{}
		o.Result.Environment.Hosts = []result.Host{
			{Name: "dut", Role: "sut", Hostname: "rack1", ClockAhead: 5000, ClockUncertainty: 300},
			{Name: "left", Role: "client", Hostname: "rack1", ClockAhead: 5000 + aheadNs, ClockUncertainty: 300},
			{Name: "far", Role: "noise", Hostname: "rack2", ClockAhead: 5000, ClockUncertainty: 300},
		}
		return o
	}
	faster := lab()
	faster.Result.Environment.Network.LinkRate = 1e9
	unmeasured := Outcome{Study: study, Failure: "no asd"}
	for _, tt := range []struct {
		name string
		all  []Outcome
		want map[string]int // texts, and how often the page must have each
	}{
		{"in the lab", []Outcome{lab(), lab(), unmeasured}, map[string]int{inLab: 1, onHosts: 0, labOnly: 2, differ: 0,
			link: 1}},
		{"on hosts", []Outcome{hosts(1e9), hosts(1e9)}, map[string]int{inLab: 0, onHosts: 1, together: 0, labOnly: 0,
			differ: 0, link: 1}},
		{"agents of one machine", []Outcome{hosts(600)}, map[string]int{inLab: 0, onHosts: 1, together: 1}},
		{"one name, two clocks", []Outcome{hosts(-601)}, map[string]int{onHosts: 1, "one machine": 0}},
		{"both", []Outcome{lab(), hosts(1e9), lab()}, map[string]int{inLab: 2, onHosts: 1, labOnly: 2, differ: 1,
			link: 1}},
		{"two links", []Outcome{lab(), faster}, map[string]int{inLab: 1, differ: 1, link: 1, "link of 1.00 Gbit/s": 1}},
		{"nothing", []Outcome{unmeasured}, map[string]int{inLab: 0, onHosts: 0, differ: 0, "other everywhere": 0}},
	} {
		var b strings.Builder
		if err := Write(&b, tt.all, "v1"); err != nil {
			t.Fatal(err)
		}
		for text, want := range tt.want {
			if n := strings.Count(b.String(), text); n != want {
				t.Errorf("%s: the page has %q %d times, want %d", tt.name, text, n, want)
			}
		}
	}
}

// TestStudies checks that each study's experiment exists and has the study's variants, in every
// form.
func TestStudies(t *testing.T) {
	hosts, err := os.ReadFile("../experiments/hosts.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range Studies {
		names = append(names, s.Experiment)
		text, err := os.ReadFile("../experiments/" + s.Experiment + ".yaml")
		if err != nil {
			t.Error(err)
			continue
		}
		var on *experiment.Hosts
		if s.Hosts {
			if on, err = experiment.ParseHosts("hosts.yaml", hosts); err != nil {
				t.Fatal(err)
			}
		}
		for _, quick := range []bool{false, true} {
			f, err := experiment.ParseWith(s.Experiment, text, experiment.Options{Hosts: on, Quick: quick})
			if err != nil {
				t.Error(err)
				continue
			}
			e := f.Experiment
			for _, name := range append([]string{s.Lane}, s.Bases...) {
				if !slices.ContainsFunc(e.Variants, func(v experiment.Variant) bool { return v.Name == name }) {
					t.Errorf("%s, quick %v: no variant %s", s.Experiment, quick, name)
				}
			}
			for _, c := range s.Claims {
				if c.Measure == RateInSLA || c.Measure == MeetsSLA {
					if slas := e.SLAs(); c.SLA >= len(slas) || c.Measure == MeetsSLA && slas[c.SLA].Percentile != c.P {
						t.Errorf("%s: %q is about SLA %d of P%v; the experiment has %v", s.Experiment, c.Text, c.SLA,
							c.P, slas)
					}
				}
			}
		}
	}
	for _, name := range []string{"memcached-connections", "memcached-shared-link", "web-cache-small",
		"web-cache-video", "memcached-client-lane", "aerospike-read", "redis-mixed", "live-linear", "vod",
		"kubernetes-memcached"} {
		if !slices.Contains(names, name) {
			t.Errorf("no study %s", name)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/statstest"
	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lane/device"
)

func TestPercentilesThatTheExperimentNames(t *testing.T) {
	r := fixture()
	r.Experiment.Repeats.Until = &experiment.Until{Percentile: 99.5}
	r.Experiment.SLA = &experiment.SLA{Percentile: 95}
	if got, want := r.percentiles(), []float64{50, 90, 95, 99, 99.5, 99.9, 99.99}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	r.Experiment.Repeats.Until = nil
	r.Experiment.MoreSLAs = []experiment.SLA{{Percentile: 98}}
	r.Experiment.Workload.Objects = []experiment.Object{{Path: "/"}}
	if got, want := r.percentiles(), []float64{50, 90, 95, 98, 99, 99.5, 99.9, 99.99}; !slices.Equal(got, want) {
		t.Errorf("HTTP with two SLAs: %v, want %v", got, want)
	}
	r.Windows[0].Load.Latency = statstest.Equal(int(stats.Needed(rare)), 7)
	if got := r.percentiles(); got[len(got)-1] != rare {
		t.Errorf("%v: a million samples carry P%v", got, rare)
	}
}

func TestExceed(t *testing.T) {
	p := Summarize(fixture()).Points[0]
	if len(p.Thresholds) != columns || p.Thresholds[1] != 2*p.Thresholds[0] || p.Thresholds[columns-1] < 421119 {
		t.Fatalf("thresholds %v: want %d evenly spaced ones beyond the slowest P99", p.Thresholds, columns)
	}
	for _, v := range p.Variants {
		if len(v.Exceed) != columns {
			t.Fatalf("%s: %d shares", v.Name, len(v.Exceed))
		}
		for i := 1; i < columns; i++ {
			if v.Exceed[i].Value != p.Thresholds[i] {
				t.Errorf("%s: the share is of %d, want %d", v.Name, v.Exceed[i].Value, p.Thresholds[i])
			}
			if v.Exceed[i].Within < v.Exceed[i-1].Within {
				t.Errorf("%s: more are slower than %d than than %d", v.Name, p.Thresholds[i], p.Thresholds[i-1])
			}
		}
		if b := v.Bucketed; v.Mean < b.Low || b.Beyond == 0 && v.Mean > b.High {
			t.Errorf("%s: mean %.0f is not in the bounds of %+v", v.Name, v.Mean, b)
		}
	}
	if got := roundUp(28_100); got != 40_000 {
		t.Errorf("%v", got)
	}
}

func TestDoubtsAreGrouped(t *testing.T) {
	r := fixture()
	r.Points = append(r.Points, Point{Mode: load.Open, Rate: 4000, Connections: 8})
	for i := range 10 {
		for _, v := range r.Variants {
			w := window(v.Name, i, 2000, 50e3)
			w.Point = 1
			if i < 3 || i == 5 {
				w.Load.Warnings = []string{strings.Repeat("9", i+1) + " requests of P99.9 late"}
			}
			if i == 5 {
				w.Load.Warnings = append(w.Load.Warnings, "7 requests of P99 late")
			}
			r.Windows = append(r.Windows, w)
		}
	}
	r.Windows[0].Load.Warnings = []string{"3 requests of P99.9 late"}
	s := Summarize(r)
	var got []string
	for _, d := range s.Doubts {
		got = append(got, d.Text+" | "+d.Places(s.Points))
	}
	want := []string{
		"3 requests of P99.9 late | At 2000/s: idle (repeat 1 of 10). At 4000/s: idle (repeats 1-3, 6 of 10), " +
			"no-lane (repeats 1-3, 6 of 10), twin (repeats 1-3, 6 of 10)",
		"noise from the SUT did not reach 90 % of the rate asked for, 400 Mbit/s | At 2000/s: no-lane (all 10 windows)",
		"7 requests of P99 late | At 4000/s: idle (repeat 6 of 10), no-lane (repeat 6 of 10), twin (repeat 6 of 10)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("doubts:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := s.Doubts[0].Windows(); n != 13 {
		t.Errorf("%d windows, want 13", n)
	}
}

func TestFirstByte(t *testing.T) {
	r := fixture()
	for i := range r.Windows {
		l := &r.Windows[i].Load
		l.FirstByte, l.FirstByteSeries = l.Latency, l.Series
	}
	p := Summarize(r).Points[0]
	if v := p.Variants[1]; len(v.FirstByte) != len(v.Percentiles) ||
		v.FirstByte[2].Estimate.Value != v.Percentiles[2].Estimate.Value || v.FirstByte[0].Difference == nil {
		t.Errorf("first byte %+v, want what the last has", v.FirstByte)
	}
	if v := Summarize(fixture()).Points[0].Variants[0]; v.FirstByte != nil {
		t.Error("a first byte that nobody measured")
	}
}

func TestSlowestRound(t *testing.T) {
	r := fixture()
	w := &r.Windows[3*4+1] // the window of no-lane in repeat 4, counted from 0
	slow := stats.NewRecorder(100e6, 10)
	for i := range 10 {
		slow.Advance(i)
		for range 200 {
			if i != 6 { // no answers in interval 6: a stall
				slow.Record(1e5)
			}
		}
	}
	slow.Record(9e9)
	w.Load.Series, w.Load.StartMono = slow.Series(), 1000
	w.Load.Latency = w.Load.Series.Histogram()
	w.Load.Stalls = []load.Stall{{AtMono: 5000, Ns: 70}}
	w.Noise[0].Receiver = noise.Result{StartMono: 1000 - 50e6, Interval: 100e6, Intervals: []int64{1, 2e6, 3e6, 4e6}}
	w.Noise[0].Sender = noise.Result{StartMono: 1000 - 150e6, Interval: 100e6,
		IntervalRetransmits: []uint64{9, 9, 5, 6}}
	// This receiver has another clock.
	w.Noise[1].Receiver = noise.Result{StartMono: 1000 + 50e9, Interval: 100e6, Intervals: []int64{1, 1, 1}}
	s := Summarize(r).Slowest
	if s == nil || s.Repeat != 5 || len(s.Variants) != 3 || s.Interval != 100e6 {
		t.Fatalf("%+v: want repeat 5 with three variants", s)
	}
	v := s.Variants[1]
	if len(v.Latency) != 9 || v.Latency[6].At != 700e6 || v.Latency[8].Slowest < 89e8 || v.Latency[0].Median < 99e3 {
		t.Errorf("latency in time: %+v", v.Latency)
	}
	if len(v.Stalls) != 1 || v.Stalls[0] != (Stall{4000, 70}) {
		t.Errorf("stalls: %+v", v.Stalls)
	}
	if len(v.Noise) != 1 || v.Noise[0].Start != 50e6 || !slices.Equal(v.Noise[0].Rates, []float64{160e6, 240e6}) ||
		!slices.Equal(v.Noise[0].Trouble, []int64{5, 6}) {
		t.Errorf("noise in time: %+v", v.Noise)
	}
}

func TestPowerOfAVariant(t *testing.T) {
	r := fixture()
	for i := range r.Windows {
		w := &r.Windows[i]
		w.Power = []power.Result{{Duration: 1e9,
			Estimate: &power.Estimate{Energy: power.Interval{Value: 100, Low: 99, High: 101}}},
			{NotMeasured: "no sensor"}}
		if w.Variant == "twin" { // power and work get windows of different length
			w.Power[0].Duration = 2e9
		}
	}
	v := Summarize(r).Points[0].Variants
	p := v[0].Power
	if len(p) != 2 || p[0].Windows != 10 || p[0].Power.Value != 100 || p[0].Derived == nil ||
		p[1].Missing != "no sensor" || p[1].Power != nil {
		t.Fatalf("power: %+v", p)
	}
	// 2000 requests per second at 100 W are 0.05 J per request.
	if j := p[0].Derived.JoulesPerRequest; math.Abs(j.Value-0.05) > 1e-9 {
		t.Errorf("%v J per request, want 0.05", j)
	}
	if p := v[2].Power[0]; p.Derived != nil || !strings.Contains(p.Missing, "want the same window") {
		t.Errorf("windows of other lengths: %+v", p)
	}
}

func TestHopsAndMachine(t *testing.T) {
	r := fixture()
	for i := range r.Windows {
		h := statstest.Filled(1000, func(i int) int64 { return int64(i) })
		r.Windows[i].Hops = []Hop{{Name: "switch", Reach: ReachNone, Rate: 8e6, Bytes: h, Drops: 2}}
		r.Windows[i].Machine.TCP.InSegments, r.Windows[i].Machine.TCP.BusyPolled = 100, 25
	}
	r.Windows[0].Machine.NAPIs = []napi.Count{{NAPI: 7, Polls: 90, Packets: 180, Busy: 9},
		{NAPI: 8, Polls: 10, Packets: 20}}
	r.Windows[0].Machine.Lanes = []machine.Lane{{Name: "web", Tx: &machine.Traffic{Packets: 50, Bytes: 1000, Drops: 3}}}
	r.Windows[0].Machine.Cards = []machine.Card{{Device: &machine.Device{Name: "eth0",
		Tx: []device.QueueCounter{{Packets: 10}, {Queue: 1, Packets: 60}}},
		Lanes: []machine.Lane{{Name: "web", Tx: &machine.Traffic{Packets: 20}}}}, {Device: &machine.Device{Name: "eth1"}}}
	p := Summarize(r).Points[0]
	h := p.Variants[0].Hops[0]
	if h.Drops != 20 || h.Max != 999 || h.P99 != 989 || math.Abs(h.MeanWait-499.5e3) > 1e3 {
		t.Errorf("hop: %+v", h)
	}
	seen := map[string]float64{}
	for _, u := range p.Machine {
		if len(u.Values) != 3 {
			t.Fatalf("%s: %d values for three variants", u.Name, len(u.Values))
		}
		seen[u.Name] = *u.Values[0]
		if strings.HasPrefix(u.Name, "lane ") && u.Values[1] != nil {
			t.Errorf("%s: %v for a variant without", u.Name, *u.Values[1])
		}
	}
	for name, want := range map[string]float64{"server: processor time, kernel": 4000, "received by busy polling": 0.25,
		"packets in a NAPI poll": 2, "NAPI polls by busy polling": 0.09,
		"eth0: sent, packets": 7, "lane web on eth0: sent, packets": 2, "lane web: sent": 800, "lane web: sent, packets": 5, "lane web: sent, drops": 3, "TCP segments sent again": 0} {
		if got, ok := seen[name]; !ok || got != want {
			t.Errorf("%s: %v, %v, want %v", name, got, ok, want)
		}
	}
	if _, ok := seen["server: waiting for a processor"]; ok {
		t.Error("what is zero everywhere is shown")
	}
}

func TestFanOuts(t *testing.T) {
	all, err := FanOuts(fixture(), 0.99)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range ComparisonFormats {
		var out bytes.Buffer
		if err := WriteFanOuts(&out, all, format); err != nil {
			t.Fatal(err)
		}
		golden(t, "fanout-"+format+".golden", out.Bytes())
	}
	for _, p := range []float64{0, 1, math.NaN()} {
		if _, err := FanOuts(fixture(), p); err == nil {
			t.Errorf("probability %v, and no error", p)
		}
	}
	few := fixture()
	few.Windows = few.Windows[:3] // a single repeat
	for i := range few.Windows {
		few.Windows[i].Load.Series = nil
	}
	if all, err = FanOuts(few, 0.99); err != nil || all[0].Variants[0].Missing != "needs more windows" {
		t.Errorf("one window: %+v, %v", all, err)
	}
}

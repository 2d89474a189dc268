// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"math"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/statstest"
	"github.com/niclane/niclane/lane/device"
)

// TestJudgeSLA: a claim about an SLA is judged by the SLA. That a lane is slower than "off" is no loss
// while both meet it, and that it is faster is no gain while neither does.
func TestJudgeSLA(t *testing.T) {
	const ms = int64(1e6)
	rates := map[string]float64{"off": 50_000, "lane": 50_000}
	for _, tt := range []struct {
		name      string
		off, lane int64
		both      bool
		want      Verdict
	}{
		{"both, lane slower", ms / 4, ms / 2, true, BothMeet},
		{"both, no gain", ms / 2, ms / 4, false, NoneNeeded},
		{"neither, lane faster", 4 * ms, 2 * ms, true, LaneMisses},
		{"only the lane", 2 * ms, ms / 2, false, LaneMeets},
		{"only the lane, unlike the paper", 2 * ms, ms / 2, true, LaneOnly},
		{"only off", ms / 2, 2 * ms, false, LaneMisses},
	} {
		r := made(map[string]int64{"off": tt.off, "lane": tt.lane}, rates)
		r.Experiment.SLA = &experiment.SLA{Percentile: 50, At: 5 * ms}
		r.Experiment.MoreSLAs = []experiment.SLA{{Percentile: 99, At: ms}}
		o := Outcome{Study: study, Result: r}
		o.Claims = []Claim{{Measure: MeetsSLA, P: 99, SLA: 1, Both: tt.both}}
		m := o.Measure()[0]
		if m.Verdict != tt.want || len(m.Against) != 1 {
			t.Errorf("%s: %q, want %q: %+v", tt.name, m.Verdict, tt.want, m)
		}
	}
}

// TestJudgeSLAOfLoads: every load counts at which the variant achieves the rate, and none at which it
// does not.
func TestJudgeSLAOfLoads(t *testing.T) {
	// At the second load each variant has the latency of late.
	two := func(late map[string]int64, achieved float64) *result.Result {
		r := made(map[string]int64{"off": 5e5, "lane": 5e5}, map[string]float64{"off": 100, "lane": 100})
		more := made(late, map[string]float64{"off": achieved, "lane": achieved})
		r.Points[0].Rate = 100
		r.Points = append(r.Points, more.Points[0])
		r.Points[1].Rate = 200
		for _, w := range more.Windows {
			w.Point = 1
			r.Windows = append(r.Windows, w)
		}
		r.Experiment.SLA = &experiment.SLA{Percentile: 99, At: 1e6}
		return r
	}
	for _, tt := range []struct {
		name     string
		late     map[string]int64
		achieved float64
		want     Verdict
		value    string
	}{
		{"off exceeds it later", map[string]int64{"off": 2e6, "lane": 6e5}, 200, LaneMeets,
			"meets it up to 200/s (200/s achieved), the highest load of all"},
		{"the lane exceeds it later", map[string]int64{"off": 6e5, "lane": 2e6}, 200, LaneMisses,
			"meets it up to 100/s (100/s achieved), exceeds it at 200/s"},
		{"beyond what both achieve", map[string]int64{"off": 2e9, "lane": 2e9}, 120, NoneNeeded,
			"meets it up to 100/s (100/s achieved), exceeds it at 200/s"},
	} {
		o := Outcome{Study: study, Result: two(tt.late, tt.achieved)}
		o.Claims = []Claim{{Measure: MeetsSLA, P: 99}}
		if m := o.Measure()[0]; m.Verdict != tt.want || m.Value != tt.value {
			t.Errorf("%s: %q, %s; want %q, %s", tt.name, m.Verdict, m.Value, tt.want, tt.value)
		}
	}
	few := two(map[string]int64{"off": 6e5, "lane": 6e5}, 200)
	for i := range few.Windows {
		if w := &few.Windows[i]; w.Point == 1 && w.Variant == "off" {
			w.Load.Latency = statstest.Equal(3, 6e5)
			w.Load.Series = stats.OneWindow(w.Load.Latency)
		}
	}
	o := Outcome{Study: study, Result: few}
	o.Claims = []Claim{{Measure: MeetsSLA, P: 99}}
	if m := o.Measure()[0]; m.Verdict != NotKnown || m.Against[0].Value != "not known at 200/s" {
		t.Errorf("too few requests: %+v", m)
	}
}

// TestJudgeBeyond: the share of requests that took longer than a time, of the paper's 11 % and none.
func TestJudgeBeyond(t *testing.T) {
	// with returns a result in which a share of the requests takes 500 µs, the others 100 µs.
	with := func(off, lane float64) *result.Result {
		r := made(map[string]int64{"off": 1e5, "lane": 1e5}, map[string]float64{"off": 100, "lane": 100})
		for i := range r.Windows {
			share := map[string]float64{"off": off, "lane": lane}[r.Windows[i].Variant]
			rec := stats.NewRecorder(1e8, 10)
			for k := range 2000 {
				rec.Advance(k / 200)
				v := int64(1e5)
				if math.Mod(float64(k+i)*share, 1) < share {
					v = 5e5
				}
				rec.Record(v)
			}
			s := rec.Series()
			r.Windows[i].Load.Series, r.Windows[i].Load.Latency = s, s.Histogram()
		}
		return r
	}
	for _, tt := range []struct {
		off, lane float64
		want      Verdict
		value     string
	}{
		{0.11, 0, AsGood, "at most 0."}, {0.11, 0.05, Less, "5.7"}, {0.05, 0.11, Worse, "11.5"},
		{0.05, 0.05, NoneSeen, "5.7"}, {1, 1, NoneSeen, "100.00 %"},
	} {
		o := Outcome{Study: study, Result: with(tt.off, tt.lane)}
		o.Claims = []Claim{{Measure: Beyond, Over: 360e3, Paper: 0.11}}
		m := o.Measure()[0]
		if m.Verdict != tt.want || !strings.HasPrefix(m.Value, tt.value) || len(m.Against) != 1 {
			t.Errorf("%v and %v: %q, %s; want %q, %s", tt.off, tt.lane, m.Verdict, m.Value, tt.want, tt.value)
		}
	}
}

// TestJudgeDelivery: a share of the link is that of the load of the paper's figure, by the device's
// counters, on a server with the paper's number of sockets.
func TestJudgeDelivery(t *testing.T) {
	r := made(map[string]int64{"lane": 1e6}, map[string]float64{"lane": 100_000})
	r.Experiment.Lab, r.Experiment.Hosts = nil, &experiment.Hosts{Clients: make([]experiment.Host, 2)}
	more := made(map[string]int64{"lane": 1e6}, map[string]float64{"lane": 120_000})
	r.Points = append(r.Points, more.Points[0])
	r.Points[1].Connections = 40
	for _, w := range more.Windows {
		w.Point = 1
		r.Windows = append(r.Windows, w)
	}
	for i := range r.Windows {
		r.Windows[i].Load.Payload = 1 // bodies do not count
	}
	measure := func(c Claim) Measured {
		o := Outcome{Study: study, Result: r}
		o.Bases, o.Claims = nil, []Claim{c}
		return o.Measure()[0]
	}
	share := Claim{Measure: LinkShare, Paper: 0.9, Sockets: 2, PerClient: 5}
	if m := measure(share); m.Value != "80.0 % of the link" || m.Verdict != "10.0 points less" ||
		m.At != "10 connections, closed loop" {
		t.Errorf("at the paper's 5 connections for each of two clients: %+v", m)
	}
	share.PerClient = 100
	if m := measure(share); m.Value != "96.0 % of the link" || m.Verdict != AsGood ||
		!strings.HasPrefix(m.At, "40 connections, closed loop, because") {
		t.Errorf("no load of the paper's: %+v", m)
	}
	r.Environment.Hardware = &device.Hardware{Sockets: 1}
	if m := measure(share); m.Verdict != "about a server with 2 sockets" || m.Value != "96.0 % of the link" {
		t.Errorf("one socket: %+v", m)
	}
	r.Experiment.Lab, r.Experiment.Hosts = &experiment.Lab{}, nil
	if m := measure(share); m.Verdict != OnSlowLink {
		t.Errorf("in the lab: %+v", m)
	}
	watt := Claim{Measure: PerWatt, Paper: 1.57, Sockets: 1, PerClient: 10}
	if m := measure(watt); m.Verdict != Unmeasured || m.Value != "not measured: power was not measured" {
		t.Errorf("without power: %+v", m)
	}
	for _, tt := range []struct {
		source string
		watts  float64 // at 0.0008 Gbit/s
		want   Verdict
	}{
		{power.RAPL, 0.0001, "not comparable: the power of all"}, {power.Raritan, 0.0001, AsGood},
		{power.Raritan, 0.001, "49 % less"}, {power.Raritan, 0.0008 / 1.57, "within the bounds of the power's reading"},
	} {
		for i := range r.Windows {
			p := power.Interval{Value: tt.watts, Low: 0.99 * tt.watts, High: 1.01 * tt.watts}
			r.Windows[i].Power = []power.Result{{Provenance: power.Provenance{Source: tt.source, Covers: "all"},
				Duration: 1e9, Estimate: &power.Estimate{Energy: p, Power: p}}}
		}
		if m := measure(watt); m.Verdict != tt.want {
			t.Errorf("%s, %v W: %+v, want %q", tt.source, tt.watts, m, tt.want)
		}
	}
	for i := range r.Windows {
		r.Windows[i].Machine.Device = nil
	}
	if m := measure(share); m.Verdict != Unmeasured || m.Value != "not measured" {
		t.Errorf("bytes that were not counted: %+v", m)
	}
}

// TestHeadline: it says what was measured and what was not.
func TestHeadline(t *testing.T) {
	r := made(map[string]int64{"off": 1e6, "lane": 1e6}, map[string]float64{"off": 1, "lane": 1})
	full, early, none := Outcome{Study: study, Result: r}, Outcome{Study: study, Result: r, Failure: "interrupted"},
		Outcome{Study: study, Failure: "no asd"}
	full.Experiment, early.Experiment, none.Experiment = "a", "b", "c"
	for want, all := range map[string][]Outcome{
		"None of these 1 experiments was measured: this page has only the papers&#39; claims.": {none},
		"3 of 4 experiments were measured: 3 at full size. Ended early: b. Not measured: c; each says why.": {
			full, early, full, none},
		"1 of 1 experiments were measured: 1 at full size.</p>": {full},
	} {
		var b strings.Builder
		if err := Write(&b, all, "v1"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %.3000s", want, b.String()[strings.Index(b.String(), "<h1>"):])
		}
	}
}

// TestColumns: the paper's own columns are held against it once both were measured, and differences that
// they do not have are gone, as is that of one instance on a server with two.
func TestColumns(t *testing.T) {
	s := study
	s.OfVariants, s.OfOne = []string{"other variants"}, []string{"one instance"}
	for _, tt := range []struct {
		on, off   string // names of two more variants
		instances int
		ratio     float64
		base      string
		want      string
	}{
		{paperOn, paperOff, 1, 0.25, paperOff, "one instance"},
		{paperOn, paperOff, 2, 0.25, paperOff, ""},
		{paperOn, "x", 1, 0.5, "off", "other variants one instance"},
	} {
		r := made(map[string]int64{"off": 1e6, "lane": 5e5}, map[string]float64{"off": 1, "lane": 1})
		more := made(map[string]int64{"off": 4e5, "lane": 1e5}, map[string]float64{"off": 1, "lane": 1})
		for _, w := range more.Windows {
			w.Variant = map[string]string{"off": tt.off, "lane": tt.on}[w.Variant]
			r.Windows = append(r.Windows, w)
		}
		r.Variants = append(r.Variants, result.Variant{Name: tt.on}, result.Variant{Name: tt.off})
		r.Server.Instances = make([]result.Instance, tt.instances)
		o := Outcome{Study: s, Result: r}
		m := o.Measure()[0]
		if a := m.Against[0]; a.Base != tt.base || a.Ratio == nil || math.Abs(a.Estimate-tt.ratio) > 0.01 {
			t.Errorf("%s, %s: %+v of %s, want %v of %s", tt.on, tt.off, a.Ratio, a.Base, tt.ratio, tt.base)
		}
		if got := strings.Join(o.differences(), " "); got != tt.want {
			t.Errorf("%s, %s, %d instances: %q, want %q", tt.on, tt.off, tt.instances, got, tt.want)
		}
	}
}

// TestJudgeLoads: a claim about every load above some is judged at the worst of these.
func TestJudgeLoads(t *testing.T) {
	// The loads have 10, 20 and 40 connections, and lane these shares of the latency of off.
	with := func(shares ...float64) *result.Result {
		var r *result.Result
		for i, share := range shares {
			more := made(map[string]int64{"off": 1e6, "lane": int64(share * 1e6)},
				map[string]float64{"off": 1, "lane": 1})
			more.Points[0].Connections = 10 << i
			for k := range more.Windows {
				more.Windows[k].Point = i
			}
			if r == nil {
				r = more
				continue
			}
			r.Points, r.Windows = append(r.Points, more.Points[0]), append(r.Windows, more.Windows...)
		}
		return r
	}
	for _, tt := range []struct {
		name   string
		shares []float64
		want   Verdict
		at     string
	}{
		{"all", []float64{2, 0.4, 0.4}, AsGood, "40 connections, the worst of 2 loads"},
		{"one less", []float64{2, 0.8, 0.4}, Less, "20 connections, the worst of 2 loads"},
		{"the highest is a loss", []float64{0.4, 0.4, 2}, Worse, "40 connections, the worst of 2 loads"},
		{"a loss beside no gain", []float64{0.4, 2, 1}, Worse, "20 connections, the worst of 2 loads"},
	} {
		o := Outcome{Study: study, Result: with(tt.shares...)}
		// Above 1,100 of 4,400 connections are 20 and 40 of 40; above 550 are all three.
		o.Claims = []Claim{{Measure: Percentile, P: 99, Paper: 0.5, Above: 1100, Of: 4400}}
		if m := o.Measure()[0]; m.Verdict != tt.want || m.At != tt.at {
			t.Errorf("%s: %q at %s, want %q at %s", tt.name, m.Verdict, m.At, tt.want, tt.at)
		}
	}
	o := Outcome{Study: study, Result: with(2, 0.4, 0.4)}
	o.Claims = []Claim{{Measure: Percentile, P: 99, Paper: 0.5, Above: 550, Of: 4400}}
	if m := o.Measure()[0]; m.Verdict != Worse || m.At != "10 connections, the worst of 3 loads" {
		t.Errorf("all three loads: %q at %s", m.Verdict, m.At)
	}
}

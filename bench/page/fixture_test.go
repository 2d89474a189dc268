// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/search"
	"github.com/niclane/niclane/bench/stats/statstest"
	"github.com/niclane/niclane/lane/device"
)

const (
	interval  = int64(100e6)
	intervals = 10
	started   = int64(1e12)
)

// everything returns an invented result, the same at each call, with data for every figure. It has
// three variants, which are measured at two rates.
func everything() *result.Result {
	r := &result.Result{
		Schema: result.Schema, Title: "a made-up run", Niclane: "v0", Started: time.Unix(1_790_000_000, 0).UTC(),
		Took: 61e9,
		Text: "version: 1\ntitle: a made-up run\n",
		Experiment: &experiment.Experiment{
			Base: "idle", Title: "a made-up run",
			Workload: experiment.Workload{Protocol: experiment.ProtocolHTTP,
				Objects: []experiment.Object{{Path: "/", Bytes: 10240}}},
			Load: experiment.Load{Mode: experiment.Open, Rates: []int{1200, 2400}, Arrivals: "poisson",
				Connections: []int{8}, Window: 1e9},
			Noise: []experiment.Noise{{Direction: experiment.ToSUT, Protocol: "tcp", Share: 300, Flows: 2}},
			SLA:   &experiment.SLA{Percentile: 99, At: 400e3},
			Variants: []experiment.Variant{{Name: "idle"}, {Name: "no-lane", Noise: true},
				{Name: "lane", Noise: true, Lanes: "x"}},
			Goals: []experiment.Goal{
				{Measure: experiment.MeasureLatency, Percentile: 99, Variant: "lane", Base: "idle", AtMost: 1.5},
				{Measure: experiment.MeasureLatency, Percentile: 99, Variant: "no-lane", Base: "idle", AtMost: 1.5},
			},
		},
		Environment: result.Environment{Kernel: "6.12.1 #1 SMP", CPUs: 4, CPUModel: "a processor",
			Network:   result.Network{Device: "sut0", LinkRate: 1e9, SwitchBuffer: 256e3},
			Placement: []result.Placement{{What: "server", CPUs: []int{1}, Class: "SCHED_FIFO 10"}},
			Sysctls:   map[string]string{"net.core.somaxconn": "4096"}},
		Server: result.Server{Kind: "command", Command: []string{"httpd"}, Address: "10.0.0.1:80"},
		Variants: []result.Variant{{Name: "idle", Title: "nothing else"}, {Name: "no-lane", Title: "noise"},
			{Name: "lane", Title: "noise and a lane", Lanes: "version: 1\nlanes: {}\n", Plan: "1  a step\n",
				Differences: []string{"a queue of its own"}}},
		Points: []result.Point{{Mode: load.Open, Rate: 1200, Connections: 8, Rounds: 6},
			{Mode: load.Open, Rate: 2400, Connections: 8, Rounds: 6, Stopped: "6 repeats"}},
	}
	for i, p := range r.Points {
		for repeat := range 6 {
			for _, v := range r.Variants {
				r.Windows = append(r.Windows, window(v.Name, i, repeat, int(p.Rate)))
			}
		}
	}
	// The variant no-lane achieves only 80 % of the highest rate.
	for i := range r.Windows {
		if w := &r.Windows[i]; w.Point == 1 && w.Variant == "no-lane" {
			w.Load.Completed = w.Load.Intended * 8 / 10
			w.Load.Warnings = []string{fmt.Sprintf("%d answers were late", 10+w.Repeat)}
		}
	}
	w := window("lane", 0, 0, 1200)
	w.Purpose, w.Sweep = result.Sweeping, &result.Sweep{Noise: 500, SwitchBuffer: 64e3}
	r.Windows = append(r.Windows, w)
	estimate := &stats.Estimate{Percentile: 99, Value: 211e3, Low: 201e3, High: 221e3}
	test := &search.Test{Rate: 3100, Achieved: 3090, Estimate: estimate}
	r.Searches = []result.Search{{Variant: "lane",
		Config: search.Config{Goal: search.Goal{Percentile: 99, Limit: 400e3}},
		Result: &search.Result{Rate: 3100, Beyond: 3700, Windows: 17,
			Tests:  []*search.Test{test, {Rate: 3700, Achieved: 3300, Missing: "needs 70 more"}},
			Levels: []search.Level{{Share: 0.5, Test: test}}}}}
	for range 2 {
		h := hiccup.Result{Duration: 1e9, Host: hiccup.Host{Busy: []hiccup.Process{{Name: "cron"}}}}
		late := statstest.Filled(3000, func(i int) int64 { return 2000 + int64(i)*5 })
		h.CPUs = append(h.CPUs, hiccup.CPU{CPU: 1, Late: late, Busy: 1e8, Total: 1e9})
		r.HostNoise = append(r.HostNoise, h)
	}
	return r
}

// window returns a window of one second. The variant no-lane, with noise but without a lane, is
// four times as slow as idle.
func window(variant string, point, repeat, n int) result.Window {
	mean := map[string]float64{"idle": 50e3, "no-lane": 200e3, "lane": 60e3}[variant]
	random := rand.New(rand.NewPCG(uint64(repeat+1), uint64(len(variant)+10*point)))
	latency, first := stats.NewRecorder(interval, intervals), stats.NewRecorder(interval, intervals)
	for i := range n {
		latency.Advance(i * intervals / n)
		first.Advance(i * intervals / n)
		v := int64(mean * (0.5 + random.ExpFloat64()/2))
		latency.Record(v)
		first.Record(v / 2)
	}
	l, f := latency.Series(), first.Series()
	w := result.Window{Purpose: result.Repeat, Variant: variant, Point: point, Repeat: repeat, Rate: float64(n),
		Load: load.Result{
			Mode: load.Open, StartMono: started, Duration: intervals * interval, Intended: int64(n), Sent: int64(n),
			Completed: int64(n), Hits: int64(n),
			Latency: l.Histogram(), Series: l, FirstByte: f.Histogram(), FirstByteSeries: f, Uncorrected: l.Histogram(),
			Wakeup: statstest.Equal(n, 1500), CPUTime: 123e6, Payload: int64(n) * 10240,
			Work:   load.Work{Gets: int64(n)},
			Stalls: []load.Stall{{AtMono: started + 31e6, Ns: 4e6}},
		}}
	w.Machine = &machine.Diff{Duration: intervals * interval, Interrupts: 7001, ContextSwitches: 8002,
		CPUs: []machine.CPU{{CPU: 0, User: 2e8, SoftIRQ: 1e8, Idle: 7e8}},
		Processes: []machine.Process{{Name: "server", User: int64(n) * 1100, System: int64(n) * 4400,
			Running: int64(n) * 5600}},
		TCP: machine.TCP{InSegments: 9003, BusyPolled: 900},
		Device: &machine.Device{Name: "sut0", Rx: []device.QueueCounter{{Queue: 0, Packets: 5004, Bytes: 31e6}},
			Tx:      []device.QueueCounter{{Queue: 0, Packets: 6005, Bytes: 32e6}},
			Classes: []device.ClassCounter{{ID: "1:10", Bytes: 12e6}}},
	}
	// This formula avoids values that are twice another value.
	backlog := statstest.Filled(2000, func(i int) int64 { return int64(i*i) / 97 })
	w.Hops = []result.Hop{{Name: "switch → SUT", Reach: result.ReachNone, Rate: 1e9, Limit: 256e3, Bytes: backlog,
		Drops: 3},
		{Name: "an idle queue", Reach: result.ReachHost, Bytes: stats.NewHistogram()}}
	w.Power = []power.Result{{Provenance: power.Provenance{Source: "rapl", Covers: "the processors"},
		Duration: intervals * interval,
		Estimate: &power.Estimate{Energy: power.Interval{Value: 71, Low: 70, High: 72},
			Power: power.Interval{Value: 71, Low: 70, High: 72}}}}
	if variant != "idle" {
		x := result.Noise{Direction: experiment.ToSUT, Asked: 280e6, Achieved: 279e6}
		x.Receiver = noise.Result{StartMono: started - interval/2, Interval: interval, Duration: 12 * interval,
			IntervalLost: make([]int64, 12)}
		x.Sender = noise.Result{Retransmits: 6, Latency: backlog, LatencyOf: noise.Smoothed}
		x.Receiver.IntervalLost[4] = 2
		for i := range int64(12) {
			x.Receiver.Intervals = append(x.Receiver.Intervals, 3_400_000+i*10_000)
		}
		w.Noise = []result.Noise{x}
	}
	return w
}

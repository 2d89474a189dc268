// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/niclane/niclane/bench/hiccup"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/stats"
)

// synthetic returns a made-up but plausible result, the same every time.
func synthetic() *Result {
	rng := rand.New(rand.NewPCG(1, 2))
	const (
		repeats = 12
		perRun  = 6_000
		link    = 1_000_000_000
		window  = int64(2e9)
	)
	r := &Result{
		Schema:  Schema,
		Title:   "memcached on a 1 Gbit/s link, with and without a lane",
		Command: "make demo",
		Started: time.Date(2026, 11, 20, 15, 4, 5, 0, time.UTC),
		Took:    158e9,
		Environment: Environment{
			Niclane: "0.1.0-dev", Kernel: "6.12.117+deb12-amd64", Distribution: "Debian GNU/Linux 12",
			CPUModel: "AMD EPYC", CPUs: 2, Memory: 8 << 30, Virtualisation: "kvm", Governor: "none",
			Mitigations: map[string]string{"spectre_v2": "Mitigation: Retpolines", "meltdown": "Not affected"},
			Sysctls:     map[string]string{"net.core.netdev_max_backlog": "250000", "net.core.somaxconn": "4096"},
			Versions:    map[string]string{"memcached": "1.6.18", "go": "1.26.8"},
			Placement: []Placement{
				{What: "memcached", CPUs: []int{0}, Class: "other"},
				{What: "generator", CPUs: []int{1}, Class: "fifo 50"},
				{What: "noise", CPUs: []int{1}, Class: "other"},
			},
			Config: "version: 1\ndevice: sut0\nlanes:\n  - name: memcached\n    queues: 1\n    ports: [11211]\n",
			Plan:   "1  queue-set/memcached  queues 3-3\n2  rule/memcached/tcp4:11211  -> queue-set/memcached\n",
		},
		Setup: Setup{
			LinkRate: link, NoiseShare: 0.75, Buffer: 256_000, Repeats: repeats, Goal: 1.5, NoiseGoal: 0.95,
			Load:  load.Config{Rate: 3_000, Arrivals: load.Poisson, Connections: 16, KeyBytes: 16, ValueBytes: 64, Duration: window},
			Noise: []noise.Config{{Role: noise.Send, Flows: 8, Rate: 730_000_000}, {Role: noise.Send, Flows: 8, Rate: 730_000_000}},
		},
		Variants: []Variant{
			{Name: Idle, Title: "nothing but memcached on the link", Differences: []string{
				"tuned as the baseline of the Traffic Server paper: irqbalance off, somaxconn 4096, netdev_max_backlog 250000"}},
			{Name: NoLane, Title: "noise in both directions, same tuning", Differences: []string{"noise at 75 % of the link in each direction"}},
			{Name: Lane, Title: "noise in both directions, memcached in a lane", Differences: []string{
				"1 of 4 queues reserved to memcached, steered by its port",
				"egress class with 20 % guarantee and 100 % ceiling, first in rank",
				"threaded NAPI of the lane's queue on CPU 0, SCHED_FIFO 20"}},
		},
	}
	mono := int64(1e12)
	latency := map[string]func(host float64) float64{
		Idle: func(host float64) float64 { return 84e3 * host * math.Exp(rng.NormFloat64()*0.18) },
		NoLane: func(host float64) float64 {
			return 84e3*host*math.Exp(rng.NormFloat64()*0.25) + 2.1e6*math.Min(1, math.Abs(0.38+0.22*rng.NormFloat64()))
		},
		Lane: func(host float64) float64 {
			return 90e3*host*math.Exp(rng.NormFloat64()*0.2) + 12e3*rng.Float64()
		},
	}
	for i := range repeats {
		for _, v := range []string{Idle, NoLane, Lane} {
			host := math.Exp(rng.NormFloat64() * 0.04)
			run := Run{Variant: v, Repeat: i, Load: load.Result{
				StartMono: mono, Duration: window, Intended: perRun, Sent: perRun, Completed: perRun, Hits: perRun,
				OfferedRate: 3_000, AchievedRate: 3_000, CPUTime: 0.17e9,
				Latency: stats.NewHistogram(), Uncorrected: stats.NewHistogram(),
				Lateness: stats.NewHistogram(), Wakeup: stats.NewHistogram(),
			}}
			for range perRun {
				l := latency[v](host)
				if rng.Float64() < 0.0015 { // the hypervisor
					l += 2e6 * rng.ExpFloat64()
				}
				w := 4e3 * math.Exp(rng.NormFloat64()*0.4)
				run.Load.Latency.Record(int64(l))
				run.Load.Uncorrected.Record(int64(l - w))
				run.Load.Lateness.Record(int64(w + 200))
				run.Load.Wakeup.Record(int64(w))
			}
			run.Hops = hopsOf(rng, v)
			if v != Idle {
				for _, d := range []string{"to the SUT", "from the SUT"} {
					n := noise.Result{Role: noise.Receive, StartMono: mono - 3e8, Duration: window + 6e8, Interval: 1e8, Flows: 8}
					for range (window + 6e8) / 1e8 {
						b := int64((730e6 + 4e6*rng.NormFloat64()) / 80)
						n.Intervals = append(n.Intervals, b)
						n.Bytes += b
					}
					n.Goodput = n.Bytes * 8e9 / n.Duration
					run.Noise = append(run.Noise, NoiseRun{Direction: d, Receiver: n, Sender: noise.Result{
						Role: noise.Send, Retransmits: uint64(rng.IntN(30)), RTTMean: 1.4e6}})
				}
			}
			run.CPU = []CPUUse{
				{What: "memcached", Time: int64(0.11e9 * math.Exp(rng.NormFloat64()*0.05))},
				{What: "generator", Time: int64(0.17e9 * math.Exp(rng.NormFloat64()*0.05))},
				{What: "cpu0 softirq", Time: int64(map[string]float64{Idle: 0.04e9, NoLane: 0.24e9, Lane: 0.27e9}[v])},
			}
			r.Runs = append(r.Runs, run)
			mono += window + 8e8
		}
	}
	for range 2 {
		h := hiccup.Result{Duration: 2e9, Host: hiccup.Host{Load1: 0.4, Autogroup: "on", Busy: []hiccup.Process{{PID: 811, Name: "unattended-upgr", CPUTime: 4e8}}}}
		for cpu := range 2 {
			c := hiccup.CPU{CPU: cpu, Late: stats.NewHistogram(), Busy: 2e7 + int64(cpu)*4e8, Total: 2e9}
			for range 4000 {
				l := 14e3 * math.Exp(rng.NormFloat64()*0.3)
				if rng.Float64() < 0.002 {
					l += 1.5e6 * rng.ExpFloat64()
				}
				c.Late.Record(int64(l))
			}
			h.CPUs = append(h.CPUs, c)
		}
		r.Hiccups = append(r.Hiccups, h)
	}
	for _, s := range []float64{0.25, 0.5, 0.75, 0.9} {
		for _, b := range []int64{64_000, 256_000, 1_000_000} {
			for _, v := range []string{NoLane, Lane} {
				h := stats.NewHistogram()
				for range 3000 {
					l := latency[v](1)
					if v == NoLane {
						l = 90e3 + (l-90e3)*s*s*math.Sqrt(float64(b)/256e3)*1.7
					}
					h.Record(int64(max(l, 40e3)))
				}
				r.Sweep = append(r.Sweep, SweepPoint{Variant: v, NoiseShare: s, Buffer: b, Latency: h, NoiseRate: int64(2 * link * s * 0.97)})
			}
		}
	}
	r.Warnings = []string{"the host is a virtual machine: its P99.9 is that of its hypervisor"}
	for _, i := range []int{4, 7, 10} { // three repeats without a lane
		r.Runs[i].Warnings = []string{fmt.Sprintf("%d packets dropped at the switch", i)}
	}
	r.Runs[7].Load.Warnings = []string{fmt.Sprintf("%d misses and %d errors among %d responses", 1, 0, perRun)}
	return r
}

// hopsOf makes up queues: a deep shared one on the SUT's port without a lane.
func hopsOf(rng *rand.Rand, variant string) []Hop {
	mk := func(name string, reach Reach, mean float64) Hop {
		h := Hop{Name: name, Reach: reach, Rate: 1_000_000_000, Limit: 256_000, Bytes: stats.NewHistogram(), Packets: stats.NewHistogram()}
		for range 400 {
			b := math.Min(256e3, mean*rng.ExpFloat64())
			h.Bytes.Record(int64(b))
			h.Packets.Record(int64(b / 1514))
		}
		return h
	}
	m := map[string][3]float64{Idle: {20, 20, 0}, NoLane: {9_000, 98_000, 0}, Lane: {9_100, 101_000, 300}}[variant]
	hops := []Hop{mk("switch → SUT", ReachNone, m[0]), mk("SUT → switch, shared class", ReachHost, m[1])}
	if variant == Lane {
		hops = append(hops, mk("SUT → switch, lane's class", ReachOwn, m[2]))
	}
	return hops
}

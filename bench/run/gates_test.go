// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/cache"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats/statstest"
	"github.com/niclane/niclane/lane/device"
)

// passing returns an experiment and a window of it that passes every gate.
func passing() (*experiment.Experiment, *result.Window) {
	e := &experiment.Experiment{
		Gates:    &experiment.Gating{Hits: 988, Tier: experiment.TierMemory},
		Workload: experiment.Workload{Protocol: experiment.ProtocolHTTPS, TLS: &experiment.TLS{Version: "1.3"}},
		Load:     experiment.Load{Mode: experiment.Open, Generators: 2},
		Variants: []experiment.Variant{{Name: "kernel", Server: &experiment.VariantServer{}}},
	}
	w := &result.Window{
		Variant: "kernel",
		Cache:   &cache.Counters{Requests: 10_000, Hits: 9880},
		Origin:  &cache.Counters{Requests: 120, CPU: 5e8, Processors: 1},
		Load: load.Result{
			Mode: load.Open, Duration: 1e9, CPUTime: 1e9, Latency: statstest.Equal(10_000, 1e6),
			Wakeup:  statstest.Equal(10_000, 1e4),
			Ciphers: map[string]int64{"TLS 1.3 TLS_AES_128_GCM_SHA256": 48},
			Work:    load.Work{Gets: 10_000, GotBytes: 100 << 20},
		},
		Machine: &machine.Diff{
			Duration: 1e9, CPUs: []machine.CPU{{CPU: 3, Steal: 1e6}},
			Device: &machine.Device{Name: "eth2",
				Tx: []device.QueueCounter{{Queue: 0, Bytes: 60 << 20}, {Queue: 1, Bytes: 44 << 20}}},
		},
	}
	return e, w
}

func TestGates(t *testing.T) {
	e, w := passing()
	if err := gated(e, w); err != nil || len(w.Warnings) > 0 {
		t.Fatalf("a window without fault: %v, %v", err, w.Warnings)
	}
	var met []string
	for _, tt := range []struct {
		name, gate, want string
		change           func(*experiment.Experiment, *result.Window)
	}{
		{"too few hits", "hits", "wrong hit ratio: 97.00 % of 10000 requests, want 98.8 %",
			func(_ *experiment.Experiment, w *result.Window) { w.Cache.Hits = 9700 }},
		{"too many hits", "hits", "wrong hit ratio: 100.00 %",
			func(_ *experiment.Experiment, w *result.Window) { w.Cache.Hits = 10_000 }},
		{"no counters", "hits", "the cache has counted no requests",
			func(_ *experiment.Experiment, w *result.Window) { w.Cache = nil }},
		{"others' requests", "hits", "the cache counted 11000 requests, the generators asked for 10000",
			func(_ *experiment.Experiment, w *result.Window) {
				w.Cache.Requests, w.Cache.Hits = 11_000, 10_868
			}},
		{"memory that is a disk", "tier", "wrong storage tier: 20 %",
			func(_ *experiment.Experiment, w *result.Window) { w.Machine.Memory.DiskRead = 20 << 20 }},
		{"a server's disk", "tier", "wrong storage tier: 30 %", func(_ *experiment.Experiment, w *result.Window) {
			w.Machine.Processes = []machine.Process{{Name: "server", DiskRead: 30 << 20}}
		}},
		{"a disk that is memory", "tier", "wrong storage tier: 0 %",
			func(e *experiment.Experiment, _ *result.Window) { e.Gates.Tier = experiment.TierDisk }},
		{"kswapd", "reclaim", "page reclaim during the window: 1 pages",
			func(_ *experiment.Experiment, w *result.Window) { w.Machine.Memory.Scanned = 1 }},
		{"allocations wait", "reclaim", "1 allocations had to wait",
			func(_ *experiment.Experiment, w *result.Window) { w.Machine.Memory.Stalls = 1 }},
		{"generators at work", "client", "saturated client: its generators used 98 %",
			func(_ *experiment.Experiment, w *result.Window) { w.Load.CPUTime = 196e7 }},
		{"generators late", "late", "late at P99, P99 of the latency is", func(_ *experiment.Experiment, w *result.Window) {
			for range 1000 {
				w.Load.Wakeup.Record(4e5)
			}
		}},
		{"origin at work", "origin", "saturated origin: it used 96 % of its 1 processors",
			func(_ *experiment.Experiment, w *result.Window) { w.Origin.CPU = 96e7 }},
		{"a plain connection", "tls", "TLS not at 100 %: 48 of 49 connections",
			func(_ *experiment.Experiment, w *result.Window) { w.Load.Ciphers["plain"] = 1 }},
		{"an older version", "tls", "TLS not at 100 %: 48 of 50", func(_ *experiment.Experiment, w *result.Window) {
			w.Load.Ciphers["TLS 1.2 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"] = 2
		}},
		{"no connection", "tls", "TLS not at 100 %: 0 of 0",
			func(_ *experiment.Experiment, w *result.Window) { w.Load.Ciphers = nil }},
		{"no kernel TLS", "tls", "the server's kernel has no TLS",
			func(e *experiment.Experiment, _ *result.Window) { e.Variants[0].Server.KernelTLS = true }},
		{"TLS by the server", "tls", "the kernel encrypts 40 of 48 connections",
			func(e *experiment.Experiment, w *result.Window) {
				e.Variants[0].Server.KernelTLS = true
				w.Machine.KernelTLS = &machine.KernelTLS{Software: 33, Device: 7}
			}},
		{"stolen time", "processors", "disturbed processors: the hypervisor took 2.0 % of processor 3",
			func(_ *experiment.Experiment, w *result.Window) { w.Machine.CPUs[0].Steal = 2e7 }},
		{"loopback", "link", "loopback instead of the link: device eth2 sent 44 %",
			func(_ *experiment.Experiment, w *result.Window) { w.Machine.Device.Tx[0].Bytes = 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			met = append(met, tt.gate)
			e, w := passing()
			tt.change(e, w)
			if err := gated(e, w); err == nil || !strings.HasPrefix(err.Error(), "gate "+tt.gate+": ") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want gate %s: %s", err, tt.gate, tt.want)
			}
			e.Gates.Warn = []string{tt.gate}
			if err := gated(e, w); err != nil || len(w.Warnings) != 1 || !strings.Contains(w.Warnings[0], tt.want) {
				t.Errorf("that only warns: %v, %v", err, w.Warnings)
			}
			e.Gates = nil
			if err := gated(e, w); err != nil {
				t.Errorf("without gates: %v", err)
			}
		})
	}
	for _, gate := range experiment.Gates {
		if !slices.Contains(met, gate) {
			t.Errorf("no window fails gate %s", gate)
		}
	}
}

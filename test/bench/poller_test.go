// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/napi"
)

// BenchmarkPollers measures experiments/pollers.yaml: memcached under noise. It tries one poller of
// memcached's lane after the other. For each poller it reports these values, per request or per
// 1,000 requests:
//
//   - lane-softirqs and lane-threads: polls of the lane's NAPIs per 1,000 requests, in softirq
//     and by a kernel thread;
//   - switches: context switches of the whole machine per 1,000 requests. They include those of
//     the generator and of the noise, which are the same for all pollers;
//   - server-switches: how often the server's threads went to sleep, per 1,000 requests;
//   - cpu-us: busy time of the server's processor, per request;
//   - us-P50, us-P99: latency over all repeats.
func BenchmarkPollers(b *testing.B) {
	vethtest.NeedRoot(b)
	dir := b.TempDir()
	niclane := filepath.Join(dir, "niclane")
	programs.Build(b, dir, program.Niclane, program.Bench)
	run(b, exec.Command(niclane, "--state-dir", dir+"/state", "--run-dir", dir+"/run",
		"bench", "run", "../../experiments/pollers.yaml", "--out", dir))
	r, err := result.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range r.Variants {
		b.Run(v.Name, func(b *testing.B) {
			for b.Loop() { //nolint:revive // measured already
			}
			reportPolled(b, r, v.Name)
		})
	}
}

// pollersCPU is the processor of the file's server. pollersQueues is the number of its lane's
// queues, which are the last queues of the device. The device is a veth, whose NAPI IDs rise with
// the queue number.
const (
	pollersCPU    = 1
	pollersQueues = 2
)

func reportPolled(b *testing.B, r *result.Result, variant string) {
	var latencies []*stats.Histogram
	var softirqs, threads, switches, serverSwitches, requests, busy float64
	for _, w := range r.Windows {
		if w.Variant != variant || w.Purpose != result.Repeat || w.Machine == nil {
			continue
		}
		latencies = append(latencies, w.Load.Latency)
		m := w.Machine
		for _, n := range lastNAPIs(m.NAPIs, pollersQueues) {
			// If a poller polls several NAPIs, each of its rounds ends with a poll that is no longer marked
			// as busy (busy_poll_stop). Do not count these polls as softirq.
			softirqs += float64(n.Polls - n.Thread - min(2*n.Busy, n.Polls-n.Thread))
			threads += float64(n.Thread)
		}
		switches += float64(m.ContextSwitches)
		for _, p := range m.Processes {
			serverSwitches += float64(p.Voluntary)
		}
		for _, c := range m.CPUs {
			if c.CPU == pollersCPU {
				busy += float64(m.Duration - c.Idle)
			}
		}
		for _, c := range w.Counts {
			requests += float64(c.Served) // with the warm-up's requests, because Machine includes the warm-up
		}
	}
	if len(latencies) == 0 || requests == 0 {
		b.Fatalf("no window of %s", variant)
	}
	h := stats.Merge(latencies...)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(softirqs/requests*1000, "lane-softirqs/kreq")
	b.ReportMetric(threads/requests*1000, "lane-threads/kreq")
	b.ReportMetric(switches/requests*1000, "switches/kreq")
	b.ReportMetric(serverSwitches/requests*1000, "server-switches/kreq")
	b.ReportMetric(busy/requests/1000, "cpu-us/req")
	b.ReportMetric(float64(h.ValueAt(50))/1e3, "us-P50")
	b.ReportMetric(float64(h.ValueAt(99))/1e3, "us-P99")
}

// lastNAPIs returns the n NAPIs with the highest IDs.
func lastNAPIs(all []napi.Count, n int) []napi.Count {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b napi.Count) int { return a.NAPI - b.NAPI })
	return all[max(len(all)-n, 0):]
}

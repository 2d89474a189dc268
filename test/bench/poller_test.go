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

// BenchmarkPollers measures experiments/pollers.yaml: memcached under noise,
// whose lane is polled in one way after the other. Of each way it reports
//
//   - lane-softirqs: polls of the lane's NAPIs in softirq per 1,000 requests, and
//     lane-threads those by a kernel thread;
//   - switches: context switches of the whole machine per 1,000 requests, the
//     generator's and the noise's included, which are the same in all ways;
//   - server-switches: times that the server's threads went to sleep, per 1,000
//     requests;
//   - cpu-us: time that the server's processor was not idle, per request;
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

// The file's server is on this processor, and its lane's queues are the last of
// the device's. The device is a veth: its NAPIs' IDs ascend with the queue.
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
			// A poller of several NAPIs ends each round with a poll that
			// is not marked as busy any more (busy_poll_stop).
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
			requests += float64(c.Served) // warm-up included, as in Machine
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

// lastNAPIs returns the n with the highest IDs.
func lastNAPIs(all []napi.Count, n int) []napi.Count {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b napi.Count) int { return a.NAPI - b.NAPI })
	return all[max(len(all)-n, 0):]
}

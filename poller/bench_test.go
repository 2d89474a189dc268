// SPDX-License-Identifier: Apache-2.0

package poller_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/lane/device"
)

// BenchmarkKilled measures how long a packet takes from one end of a veth to a sleeping reader at
// the other end. Each packet leaves as soon as the one before it has arrived. There are four cases:
//
//   - softirq: no poller, interrupts not deferred
//   - polled: a poller on another processor, and interrupts deferred as in a plan
//   - killed: right after the poller's SIGKILL, interrupts still deferred
//   - restored: after niclane has restored the NAPI configuration
//
// In the case "killed", a packet can be late by the gro-flush-timeout (200 µs), if it comes less
// than that time after another packet.
func BenchmarkKilled(b *testing.B) {
	run(b, func(b *testing.B, et *ethtool.Client) {
		p := all()
		p.Policy, p.Priority, p.Nice, p.Timeout = "fifo", 60, 0, 1e9
		// vethtest.Run owns this thread, and the thread ends with it. So its affinity need not be
		// restored.
		if err := sched.SetAffinity(unix.Gettid(), []int{runtime.NumCPU() - 1}); err != nil {
			b.Error(err)
		}
		f := newFrames(b, et)
		defer f.close()
		measure := func(name string) {
			var ns []time.Duration
			for range 2000 {
				start := time.Now()
				if !f.exchange(1) {
					return
				}
				ns = append(ns, time.Since(start))
			}
			if s := state(b, p); s.PID != 0 {
				b.Logf("%s: %+v", name, s)
			}
			slices.Sort(ns)
			b.ReportMetric(float64(ns[len(ns)/2])/1e3, "us-P50-"+name)
			b.ReportMetric(float64(ns[len(ns)*99/100])/1e3, "us-P99-"+name)
		}
		nd := openNetdev(b, et)
		defer nd.Close()
		for b.Loop() {
			measure("softirq")
			begin(b, p)
			before := configure(b, et, p, func(c *device.NAPIConfig) {
				c.DeferHardIRQs, c.GROFlushTimeout = 1,
					200_000
			})
			measure("polled")
			kill(b, state(b, p).PID, unix.SIGKILL)
			gone(b, p, "it is gone")
			measure("killed")
			for _, was := range before {
				now, err := nd.Read(was)
				if err == nil {
					err = nd.Write(now, was)
				}
				if err != nil {
					b.Error(err)
				}
			}
			measure("restored")
		}
		b.ReportMetric(0, "ns/op")
	})
}

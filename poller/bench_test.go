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

// BenchmarkKilled is what a packet waits from one end of a veth to a sleeping
// reader at the other, each sent when the one before has arrived: the closest
// that packets can follow one another.
//
//   - softirq: no poller, nothing put off
//   - polled: a poller on another processor, and interrupts put off as a plan
//     does it
//   - killed: right after its SIGKILL, interrupts still put off
//   - restored: after niclane has put the NAPIs' configuration back
//
// killed is what a dead poller costs until somebody restores the NAPIs: the
// gro-flush-timeout, 200 µs, for packets that follow one another closer than
// that.
func BenchmarkKilled(b *testing.B) {
	run(b, func(b *testing.B, et *ethtool.Client) {
		p := all()
		p.Policy, p.Priority, p.Nice, p.Timeout = "fifo", 60, 0, 1e9
		// the thread is Run's, and ends with it
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

// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/thread"
)

// finish closes the account at time end: what is unanswered stays in the
// distribution with the time it has waited.
func (r *run) finish(end, counted, cpu int64) {
	res := &r.res
	if cpu >= 0 {
		res.CPUTime = thread.CPUTime() - cpu
	}
	var rtt, measured int64
	for i := range r.conns {
		c := &r.conns[i]
		for j := c.head; j < c.tail; j++ {
			if p := c.at(j); p.counted {
				res.Unanswered++
				res.Latency.Record(end - p.intended)
				if j >= c.sent { // never left the generator
					res.Lateness.Record(end - p.intended)
				}
			}
		}
		if c.dead {
			continue
		}
		if info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			res.Retransmits += uint64(info.Total_retrans)
			rtt += int64(info.Rtt) * 1000
			measured++
		}
	}
	if measured > 0 {
		res.RTT = rtt / measured
	}
	res.StartMono = r.clock.Start() + counted
	res.Duration = r.cfg.Duration
	seconds := float64(res.Duration) / 1e9
	res.OfferedRate = float64(res.Intended) / seconds
	res.AchievedRate = float64(res.Completed) / seconds
	warn := func(format string, a ...any) { res.Warnings = append(res.Warnings, fmt.Sprintf(format, a...)) }
	if n := res.Unanswered; n > 0 {
		warn("%d of %d requests were never answered", n, res.Intended)
	}
	if n := res.Misses + res.Errors; n > 0 {
		warn("%d misses and %d errors among %d responses", res.Misses, res.Errors, res.Completed)
	}
	if res.ConnectionsLost > 0 {
		warn("%d of %d connections were lost", res.ConnectionsLost, len(r.conns))
	}
	if res.AchievedRate < 0.95*res.OfferedRate {
		warn("%.0f requests/s were answered of %.0f due", res.AchievedRate, res.OfferedRate)
	}
	if busy := float64(res.CPUTime) / float64(res.Duration); busy > 0.9 && r.cfg.Spin == 0 {
		warn("the generator used %.0f %% of its processor: it is saturated", 100*busy)
	}
	// The generator's own share of the latency: above a half it, not the
	// server, shapes the result.
	if w, l := res.Wakeup.ValueAt(50), res.Latency.ValueAt(50); l > 0 && 2*w > l {
		warn("the generator noticed half of the requests more than %.1f us after they were due; P50 latency is %.1f us", float64(w)/1e3, float64(l)/1e3)
	}
}

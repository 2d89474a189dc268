// SPDX-License-Identifier: Apache-2.0

// Package noise sends or receives bulk TCP at a set rate: the traffic a lane
// is to be shielded from.
//
// The sender is paced inside TCP (SO_MAX_PACING_RATE; TCP paces by itself where
// there is no fq qdisc), not by sleeping between writes, so it does not emit a
// write's worth of packets at line rate. Neither role copies payload. It does
// not shape anything outside its own sockets and does not claim that the rate
// was reached: the Result says what was.
//
// How large the bursts are that TCP emits is decided outside the socket: about
// 1 ms of the flow's rate, and up to the device's gso_max_size while the round
// trip time is below 0.5 ms (tcp_tso_autosize(), sysctl net.ipv4.tcp_tso_rtt_log).
// Set the namespace's tcp_tso_rtt_log to 0 or the device's gso_max_size to a
// few segments. Seen at 712 Mbit/s through 1 Gbit/s, Linux 6.18, veth, as the
// backlog that a packet of the noise meets at the port, in bytes:
//
//	flows  tcp_tso_rtt_log  gso_max_size  burst   P50    P99    P99.9
//	1      9 (default)      65536         65226   65226  65226  66952
//	8      9                65536         30474   36987  110297 167866
//	8      0                65536         10202   24918  66523  77506
//	1      0                9000          8754    8754   8754   10987
//	4      0                6000          5858    9188   21164  24172
//	4      0                3000          2962    5418   11079  12853
package noise

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/niclane/niclane/bench/thread"
)

// Roles.
const (
	Send    = "send"    // connect and send
	Receive = "receive" // listen and receive
)

// Config is what Run does. Durations are in ns.
type Config struct {
	// Role is Send or Receive.
	Role string `json:"role"`
	// Address to connect to or to listen on.
	Address string `json:"address"`
	// Flows to open, 1 to 1000 (default 1). A receiver ends when it has had
	// that many and all are closed.
	Flows int `json:"flows,omitempty"`
	// Rate of the payload over all flows in bits/s, at least 8000; see
	// PayloadRate. Send only; 0 means unpaced.
	Rate int64 `json:"rateBitsPerSecond,omitempty"`
	// Duration from the first connection; 0 means until ctx ends.
	Duration int64 `json:"durationNs,omitempty"`
	// Interval of the time line (default 100 ms, at least 1 ms).
	Interval int64 `json:"intervalNs,omitempty"`
	// SendBuffer is SO_SNDBUF in bytes, 0 leaves it to the kernel.
	SendBuffer int `json:"sendBufferBytes,omitempty"`
	// MSS is TCP_MAXSEG in bytes, 88 to 32767; 0 leaves it to the kernel.
	MSS int `json:"mssBytes,omitempty"`
	// Congestion names the congestion control, "" leaves the default.
	Congestion string `json:"congestion,omitempty"`
	// ConnectTimeout (default 5 s) covers refused attempts too: the receiver
	// may start after the sender.
	ConnectTimeout int64 `json:"connectTimeoutNs,omitempty"`
	// Placement of the thread.
	thread.Setup
}

// Result of a run.
type Result struct {
	Role string `json:"role"`
	// StartMono is CLOCK_MONOTONIC when the first interval began, ns.
	StartMono int64 `json:"startMonoNs"`
	// Duration from there to the end, ns.
	Duration int64 `json:"durationNs"`
	Flows    int   `json:"flows"` // that were open at some time
	// Bytes of payload acknowledged (Send) or received (Receive).
	Bytes int64 `json:"bytes"`
	// Goodput is Bytes over Duration in bits/s.
	Goodput int64 `json:"goodputBitsPerSecond"`
	// Intervals holds the payload bytes of each Interval, the last one partial.
	Interval  int64   `json:"intervalNs"`
	Intervals []int64 `json:"intervalBytes"`

	// Of a sender, from TCP_INFO: segments sent again, and the smoothed round
	// trip time sampled once per interval and flow.
	Retransmits uint64 `json:"retransmits"`
	RTTMin      int64  `json:"rttMinNs"`
	RTTMean     int64  `json:"rttMeanNs"`
	RTTMax      int64  `json:"rttMaxNs"`

	CPUTime  int64    `json:"cpuTimeNs"` // of the thread
	Wakeups  int64    `json:"wakeups"`   // returns from epoll
	Warnings []string `json:"warnings,omitempty"`
}

// Over returns the goodput in bits/s between two CLOCK_MONOTONIC times (ns),
// from the whole intervals inside them: noise outlives the window in which
// latency is counted. It returns false when no whole interval lies inside.
func (r Result) Over(from, to int64) (int64, bool) {
	var bytes, n int64
	for i, b := range r.Intervals {
		start := r.StartMono + int64(i)*r.Interval
		if start >= from && start+r.Interval <= to && start+r.Interval <= r.StartMono+r.Duration {
			bytes += b
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	return int64(float64(bytes) * 8e9 / float64(n*r.Interval)), true
}

// PayloadRate converts a share of a link, counted as Ethernet counts it at
// layer 2 without FCS (what tc and interface counters see), into the payload
// rate that fills it. mtu is the IP MTU in bytes; TCP has timestamps.
func PayloadRate(linkBits int64, mtu int, ipv6 bool) int64 {
	headers := 20 + 32
	if ipv6 {
		headers = 40 + 32
	}
	return int64(float64(linkBits) * float64(mtu-headers) / float64(mtu+14))
}

func (c Config) withDefaults() (Config, netip.AddrPort, error) {
	if c.Flows == 0 {
		c.Flows = 1
	}
	if c.Interval == 0 {
		c.Interval = 100e6
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 5e9
	}
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	addr, err := netip.ParseAddrPort(c.Address)
	if err != nil {
		bad("address %q: want ADDRESS:PORT with a numeric address", c.Address)
	}
	if c.Role != Send && c.Role != Receive {
		bad("role %q: want %q or %q", c.Role, Send, Receive)
	}
	if c.Flows < 1 || c.Flows > 1000 {
		bad("flows %d: want 1 to 1000", c.Flows)
	}
	if c.Rate != 0 && c.Rate < 8000 || c.Rate < 0 || c.Rate/8/int64(max(c.Flows, 1)) > 1<<40 {
		bad("rateBitsPerSecond %d: want 0 or 8000 to %d per flow", c.Rate, int64(8)<<40)
	}
	if c.Duration < 0 || c.ConnectTimeout < 0 || c.Interval < 1e6 {
		bad("durations: want none negative and intervalNs at least 1000000")
	}
	if c.SendBuffer < 0 || c.SendBuffer > 1<<30 {
		bad("sendBufferBytes %d: want 0 to %d", c.SendBuffer, 1<<30)
	}
	if c.MSS != 0 && (c.MSS < 88 || c.MSS > 32767) { // TCP_MIN_MSS, MAX_TCP_WINDOW
		bad("mssBytes %d: want 0 or 88 to 32767", c.MSS)
	}
	if len(errs) > 0 {
		return c, addr, fmt.Errorf("noise: %w", errors.Join(errs...))
	}
	return c, addr, nil
}

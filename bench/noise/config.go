// SPDX-License-Identifier: Apache-2.0

// Package noise sends or receives bulk TCP or UDP at a set rate: the traffic from which a lane must
// be protected. One run sends or receives; traffic in two directions takes two runs.
//
// TCP itself paces the sender of TCP (SO_MAX_PACING_RATE, without an fq qdisc). So the sender does
// not emit the packets of one write at line rate. The sender of UDP wakes at most every 100 µs and
// sends the datagrams that are due. It drops datagrams that it could not send within 2 ms;
// otherwise they would leave in one burst. Neither sender nor receiver copies payload. The package
// shapes only its own sockets. It does not guarantee the rate: the Result has the rate that was
// reached.
//
// Datagrams are numbered, so the receiver knows which were lost, duplicated or reordered. They
// contain the sender's CLOCK_MONOTONIC. If the receiver is on the same machine, it measures the
// time from the send to the kernel's timestamp of the arrival (SO_TIMESTAMPNS), so its own wake-up
// does not count. Otherwise it sends one datagram per ms back, and the sender measures the round
// trip.
//
// The size of the bursts that TCP emits also depends on settings outside the socket. By default a
// burst is about 1 ms of the flow's rate, and up to the device's gso_max_size while the round trip
// time is below 0.5 ms (tcp_tso_autosize(), sysctl net.ipv4.tcp_tso_rtt_log). For small bursts, set
// the namespace's tcp_tso_rtt_log to 0, or the device's gso_max_size to a few segments. The table
// has values measured at 712 Mbit/s through 1 Gbit/s, Linux 6.18, veth, in bytes. P50 to P99.9 are
// of the backlog that a packet of the noise finds at the port:
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
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/stats"
)

// Roles.
const (
	Send    = "send"    // connect and send
	Receive = "receive" // listen and receive
)

// Protocols.
const (
	TCP = "tcp"
	UDP = "udp"
)

// LeastInterval is the shortest Config.Interval, in ns.
const LeastInterval = int64(100 * time.Microsecond)

// Config is the configuration of Run. Durations are in ns.
type Config struct {
	// Protocol is TCP (default) or UDP.
	Protocol string `json:"protocol,omitempty"`
	// Role is Send or Receive.
	Role string `json:"role"`
	// Address to connect to, or to listen on.
	Address string `json:"address"`
	// Flows is the number of flows, 1 to 1000 (default 1). A receiver ends after this many flows have
	// opened and all are closed.
	Flows int `json:"flows,omitempty"`
	// Rate is the payload rate over all flows in bits/s, at least 8000; see PayloadRate and
	// DatagramRate. For Send only; 0 means unpaced, TCP only.
	Rate int64 `json:"rateBitsPerSecond,omitempty"`
	// Duration is counted from the first connection; 0 means until ctx ends.
	Duration int64 `json:"durationNs,omitempty"`
	// Interval is the length of each entry in the Result's time lines (default 100 ms, at least LeastInterval).
	Interval int64 `json:"intervalNs,omitempty"`
	// Datagram is the payload of a UDP datagram in bytes, 40 to 65507 (default 1200, which fits
	// every path). Datagrams are not fragmented.
	Datagram int `json:"datagramBytes,omitempty"`
	// SendBuffer is SO_SNDBUF in bytes, 0 leaves it to the kernel.
	SendBuffer int `json:"sendBufferBytes,omitempty"`
	// MSS is TCP_MAXSEG in bytes, 88 to 32767; 0 leaves it to the kernel. TCP only.
	MSS int `json:"mssBytes,omitempty"`
	// Congestion names the congestion control, "" leaves the default. TCP only.
	Congestion string `json:"congestion,omitempty"`
	// ConnectTimeout (default 5 s) limits the attempts to connect. A refused attempt is repeated,
	// because the receiver may start after the sender.
	ConnectTimeout int64 `json:"connectTimeoutNs,omitempty"`
	// Placement of the thread.
	thread.Setup
}

// Result is what one run sent or received, and how.
type Result struct {
	Role     string `json:"role"`
	Protocol string `json:"protocol,omitempty"`
	// StartMono is CLOCK_MONOTONIC when the first interval began, ns.
	StartMono int64 `json:"startMonoNs"`
	// Duration is the time from StartMono to the end, ns.
	Duration int64 `json:"durationNs"`
	Flows    int   `json:"flows"` // flows that were open at some time
	// Bytes of payload: acknowledged (TCP sender), sent (UDP sender) or received (receiver).
	// Duplicates do not count.
	Bytes int64 `json:"bytes"`
	// Goodput is Bytes over Duration in bits/s.
	Goodput int64 `json:"goodputBitsPerSecond"`
	// Intervals has the payload bytes of each Interval. The last interval may be shorter.
	Interval  int64   `json:"intervalNs"`
	Intervals []int64 `json:"intervalBytes"`

	// Values from TCP_INFO, for a sender of TCP: retransmitted segments, and the smoothed round trip
	// time. It is sampled once per interval and flow.
	Retransmits uint64 `json:"retransmits"`
	RTTMin      int64  `json:"rttMinNs"`
	RTTMean     int64  `json:"rttMeanNs"`
	RTTMax      int64  `json:"rttMaxNs"`
	// The same values by interval. IntervalRTT is the mean of the smoothed round trip times at the
	// interval's end, 0 if there is none. IntervalRetransmits is the segments retransmitted in the
	// interval. For a sender of UDP with the receiver on another machine, IntervalRTT is the mean of
	// its round trips.
	IntervalRTT         []int64  `json:"intervalRTTNs,omitempty"`
	IntervalRetransmits []uint64 `json:"intervalRetransmits,omitempty"`

	// Datagrams is the number of UDP datagrams that were sent, or received without Duplicates.
	Datagrams int64 `json:"datagrams,omitempty"`
	// Forgone datagrams were due but never sent, because the sender was late or the socket's buffer
	// was full.
	Forgone int64 `json:"forgone,omitempty"`
	// These fields are for a receiver of UDP. Lost datagrams were sent, by the sender's count, and
	// never arrived. Duplicates arrived a second time. Reordered datagrams arrived after a datagram
	// that was sent later. SocketDrops is the part of Lost that the kernel dropped because the
	// receiver's own socket was full.
	Lost        int64 `json:"lost,omitempty"`
	Duplicates  int64 `json:"duplicates,omitempty"`
	Reordered   int64 `json:"reordered,omitempty"`
	SocketDrops int64 `json:"socketDrops,omitempty"`
	// IntervalLost is the growth of Lost in each interval. It is negative if datagrams that counted as
	// lost arrive late.
	IntervalLost []int64 `json:"intervalLost,omitempty"`
	// Latency is that of datagrams, or the smoothed round trip times of TCP; LatencyOf says which.
	// IntervalLatency is the mean in each interval of a receiver, 0 if there is none.
	Latency         *stats.Histogram `json:"latency,omitempty"`
	LatencyOf       string           `json:"latencyOf,omitempty"`
	IntervalLatency []int64          `json:"intervalLatencyNs,omitempty"`

	CPUTime  int64    `json:"cpuTimeNs"` // of the thread
	Wakeups  int64    `json:"wakeups"`   // of the thread
	Warnings []string `json:"warnings,omitempty"`
}

// Values of LatencyOf.
const (
	OneWay    = "one way"             // latency of every datagram, from send to arrival
	RoundTrip = "round trip"          // round trip of one datagram per ms
	Smoothed  = "smoothed round trip" // TCP only, one sample per interval and flow
)

// Over returns the goodput in bits/s between two CLOCK_MONOTONIC times (ns). It uses only intervals
// that lie completely between them. Noise starts before and ends after the window in which latency
// is counted, so callers pass that window's ends. Over returns false if no interval fits.
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

// PayloadRate returns the payload rate of TCP that fills linkBits, a rate on the link. Rates on the
// link count bytes as Ethernet does at layer 2 without FCS (as tc and interface counters do). mtu
// is the IP MTU in bytes. TCP is assumed to send timestamps.
func PayloadRate(linkBits int64, mtu int, ipv6 bool) int64 {
	headers := 20 + 32
	if ipv6 {
		headers = 40 + 32
	}
	return int64(float64(linkBits) * float64(mtu-headers) / float64(mtu+14))
}

// DatagramRate is PayloadRate for UDP; datagram is the payload bytes of one datagram.
func DatagramRate(linkBits int64, datagram int, ipv6 bool) int64 {
	headers := 20 + 8 + 14
	if ipv6 {
		headers = 40 + 8 + 14
	}
	return int64(float64(linkBits) * float64(datagram) / float64(datagram+headers))
}

func (c Config) withDefaults() (Config, netip.AddrPort, error) {
	c.Flows = cmp.Or(c.Flows, 1)
	c.Protocol = cmp.Or(c.Protocol, TCP)
	if c.Datagram == 0 && c.Protocol == UDP {
		c.Datagram = 1200
	}
	c.Interval = cmp.Or(c.Interval, 100e6)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 5e9)
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
	if c.Duration < 0 || c.ConnectTimeout < 0 || c.Interval < LeastInterval {
		bad("durations: want none negative and intervalNs at least %d", LeastInterval)
	}
	if c.SendBuffer < 0 || c.SendBuffer > 1<<30 {
		bad("sendBufferBytes %d: want 0 to %d", c.SendBuffer, 1<<30)
	}
	if c.MSS != 0 && (c.MSS < 88 || c.MSS > 32767) { // TCP_MIN_MSS, MAX_TCP_WINDOW
		bad("mssBytes %d: want 0 or 88 to 32767", c.MSS)
	}
	switch c.Protocol {
	case TCP:
		if c.Datagram != 0 {
			bad("datagramBytes %d: TCP has no datagrams", c.Datagram)
		}
	case UDP:
		if c.Datagram < headerBytes || c.Datagram > maxDatagram {
			bad("datagramBytes %d: want %d to %d", c.Datagram, headerBytes, maxDatagram)
		}
		if c.MSS != 0 || c.Congestion != "" {
			bad("mssBytes %d, congestion %q: UDP has neither", c.MSS, c.Congestion)
		}
		if c.Role == Send && c.Rate == 0 {
			bad("rateBitsPerSecond 0: datagrams are sent at a rate, want at least 8000")
		}
	default:
		bad("protocol %q: want %q or %q", c.Protocol, TCP, UDP)
	}
	if len(errs) > 0 {
		return c, addr, fmt.Errorf("noise: %w", errors.Join(errs...))
	}
	return c, addr, nil
}

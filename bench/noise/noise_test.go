// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/errtest"
)

// free returns a loopback address with a TCP port on which nothing listens.
func free(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		if host == "::1" && noIPv6(err) {
			t.Skipf("no IPv6 loopback: %v", err)
		}
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// noIPv6 reports whether an error means that the host has no IPv6. It comes from the kernel, or
// from package net, which checks first.
func noIPv6(err error) bool {
	var address *net.AddrError
	return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) || errors.As(err, &address)
}

type outcome struct {
	Result
	err error
}

func start(ctx context.Context, c Config) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() { r, err := Run(ctx, c); ch <- outcome{r, err} }()
	return ch
}

// both waits for a sender and a receiver and returns their results. An error of either fails the
// test.
func both(t *testing.T, tx, rx <-chan outcome) (Result, Result) {
	t.Helper()
	s, r := <-tx, <-rx
	if s.err != nil || r.err != nil {
		t.Fatal(s.err, r.err)
	}
	return s.Result, r.Result
}

// endsEarly checks that Run returns an error if the context ends before any flow is open.
func endsEarly(t *testing.T, protocol, address string) {
	t.Helper()
	for _, role := range []string{Send, Receive} {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		o := start(ctx, Config{Role: role, Protocol: protocol, Address: address, Rate: 1e6, ConnectTimeout: 3600e9})
		cancel(why)
		if r := <-o; !errors.Is(r.err, why) {
			t.Errorf("%s: %v, want %v", role, r.err, why)
		}
	}
}

func sum[N int64 | uint64](v []N) (n N) {
	for _, x := range v {
		n += x
	}
	return n
}

func TestBothRoles(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			addr := free(t, host)
			// The sender starts first: it must wait for the receiver.
			tx := start(t.Context(), Config{Role: Send, Address: addr, Flows: 3, Rate: 80e6, Duration: 500e6,
				Interval: 50e6, ConnectTimeout: 30e9, MSS: 1000, Congestion: "reno"})
			rx := start(t.Context(), Config{Role: Receive, Address: addr, Flows: 3, Interval: 50e6})
			s, r := both(t, tx, rx)
			// 80 Mbit/s for 0.5 s are 5 MB. TCP paces the start of a flow faster, and a busy host makes it
			// slower. A sender that is not paced would send far more.
			if s.Bytes == 0 || s.Bytes > 10e6 {
				t.Errorf("%d bytes were acknowledged, want at most about 5 MB", s.Bytes)
			}
			// Bytes in flight when the sender resets are not acknowledged.
			if r.Bytes < s.Bytes {
				t.Errorf("%d bytes received, %d acknowledged", r.Bytes, s.Bytes)
			}
			for _, o := range []Result{s, r} {
				if n := sum(o.Intervals); n != o.Bytes || o.Flows != 3 {
					t.Errorf("%s: intervals hold %d of %d bytes; %d flows, want 3", o.Role, n, o.Bytes, o.Flows)
				}
				if o.Duration < 100e6 || len(o.Intervals) == 0 {
					t.Errorf("%s: %d ns, %d intervals", o.Role, o.Duration, len(o.Intervals))
				}
			}
			if len(s.IntervalRTT) != len(s.Intervals) || len(s.IntervalRetransmits) != len(s.Intervals) ||
				sum(s.IntervalRetransmits) != s.Retransmits || s.IntervalRTT[0] <= 0 {
				t.Errorf("%d intervals: round trips %v, retransmits %v of %d", len(s.Intervals), s.IntervalRTT,
					s.IntervalRetransmits, s.Retransmits)
			}
			if s.LatencyOf != Smoothed || s.Latency.Count() < int64(len(s.Intervals)) ||
				s.Latency.Max() < s.RTTMax*999/1000 || r.Latency != nil {
				t.Errorf("latency of %q: %d samples to %d ns, the receiver's %v", s.LatencyOf, s.Latency.Count(),
					s.Latency.Max(), r.Latency)
			}
			if s.RTTMin <= 0 || s.RTTMin > s.RTTMean || s.RTTMean > s.RTTMax {
				t.Errorf("rtt min %d mean %d max %d", s.RTTMin, s.RTTMean, s.RTTMax)
			}
		})
	}
}

// TestContextEnds checks that Run returns a result promptly when its context ends, even while the
// receiver sleeps. The program that runs the experiment stops noise in this way.
func TestContextEnds(t *testing.T) {
	addr := free(t, "127.0.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	rx := start(ctx, Config{Role: Receive, Address: addr, Flows: 2, Interval: 10e6})
	conn, err := net.Dial("tcp", addr)
	for deadline := time.Now().Add(30 * time.Second); err != nil; conn, err = net.Dial("tcp", addr) {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	// 1000 bytes are less than SO_RCVLOWAT: there is no event, but the result must count them.
	for deadline := time.Now().Add(30 * time.Second); accepted(t, conn) != 1000; {
		if time.Now().After(deadline) {
			t.Fatal("1000 bytes were not acknowledged")
		}
	}
	cancel()
	r := <-rx
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.Bytes != 1000 || r.Flows != 1 {
		t.Errorf("%d bytes of %d flows, want 1000 of 1", r.Bytes, r.Flows)
	}
	if d := cmp.Diff([]string{"1 of 2 flows opened"}, r.Warnings); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	endsEarly(t, TCP, free(t, "127.0.0.1"))
}

// accepted returns the number of bytes of c that the peer's kernel has acknowledged.
func accepted(t *testing.T, c net.Conn) int {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int(i.Bytes_acked) - 1 // without the SYN
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAskedToEndEarly checks the error of a Run whose context ends before there is a result.
func TestAskedToEndEarly(t *testing.T) {
	for _, protocol := range []string{TCP, UDP} {
		for _, role := range []string{Send, Receive} {
			c := Config{Role: role, Protocol: protocol, Address: free(t, "127.0.0.1"), Flows: 3, ConnectTimeout: 30e9}
			if role == Send {
				c.Rate = 1e6
				if protocol == UDP {
					c.Datagram = 100
				}
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("terminated"))
			_, err := Run(ctx, c)
			if err == nil || err.Error() != "noise: asked to end when 0 of 3 flows were open: terminated" {
				t.Errorf("%s, %s: %v", protocol, role, err)
			}
		}
	}
}

func TestNobodyListens(t *testing.T) {
	_, err := Run(t.Context(), Config{Role: Send, Address: free(t, "127.0.0.1"), ConnectTimeout: 50e6})
	errtest.Says(t, "nobody listens", err, "refused")
}

func TestUnknownCongestionControl(t *testing.T) {
	addr := free(t, "127.0.0.1")
	_, err := Run(t.Context(), Config{Role: Send, Address: addr, Congestion: "nonesuch", ConnectTimeout: 1e6})
	errtest.Says(t, "nonesuch", err, "TCP_CONGESTION nonesuch")
}

func TestOver(t *testing.T) {
	r := Result{StartMono: 1000e9, Duration: 450e6, Interval: 100e6, Intervals: []int64{1, 1_000_000, 2_000_000, 4, 5}}
	for _, tt := range []struct {
		name     string
		from, to int64
		want     int64
		ok       bool
	}{
		{"two whole intervals", 1000e9 + 100e6, 1000e9 + 300e6, 120_000_000, true},
		{"cut ones left out", 1000e9 + 50e6, 1000e9 + 250e6, 80_000_000, true},
		{"none", 1000e9 + 110e6, 1000e9 + 190e6, 0, false},
		{"before", 0, 1000e9, 0, false},
		{"only whole ones at the end", 1000e9 + 300e6, 2000e9, 320, true},
	} {
		if got, ok := r.Over(tt.from, tt.to); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %d %v, want %d %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestPayloadRate(t *testing.T) {
	// A frame of 1514 bytes has 1448 bytes of payload; over IPv6, 1428.
	if got := PayloadRate(1_514_000_000, 1500, false); got != 1_448_000_000 {
		t.Errorf("IPv4: %d, want 1448000000", got)
	}
	if got := PayloadRate(1_514_000_000, 1500, true); got != 1_428_000_000 {
		t.Errorf("IPv6: %d, want 1428000000", got)
	}
	// A frame of 1514 bytes has 1472 bytes of payload; over IPv6, 1452.
	if got := DatagramRate(1_514_000_000, 1472, false); got != 1_472_000_000 {
		t.Errorf("UDP: %d, want 1472000000", got)
	}
	if got := DatagramRate(1_514_000_000, 1452, true); got != 1_452_000_000 {
		t.Errorf("UDP over IPv6: %d, want 1452000000", got)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct {
		c    Config
		want []string
	}{
		{Config{Role: "both", Address: "x", Flows: -1, Rate: 5, Duration: -1, MSS: 1, SendBuffer: -1, Datagram: 9},
			[]string{"role", "address", "flows", "rateBitsPerSecond", "durations", "mssBytes", "sendBufferBytes",
				"TCP has no datagrams"}},
		{Config{Role: Send, Protocol: UDP, Address: "127.0.0.1:1", Datagram: 39, Congestion: "cubic"},
			[]string{"datagramBytes 39: want 40 to 65507", "UDP has neither", "datagrams are sent at a rate"}},
		{Config{Role: Send, Protocol: "sctp", Address: "127.0.0.1:1"},
			[]string{`protocol "sctp": want "tcp" or "udp"`}},
	} {
		_, err := Run(t.Context(), tt.c)
		errtest.Says(t, "all", err, tt.want...)
	}
}

func TestJSON(t *testing.T) {
	r := Result{Role: Send, Intervals: []int64{1, 2}, Interval: 5, Warnings: []string{"x"}}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got Result
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

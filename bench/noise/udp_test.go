// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/sock"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/stats"
)

func freeUDP(t *testing.T, host string) string {
	t.Helper()
	c, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		if host == "::1" && noIPv6(err) {
			t.Skipf("no IPv6 loopback: %v", err)
		}
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}

// TestDatagrams checks that datagrams arrive, are counted once, and that their latency is measured.
func TestDatagrams(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			addr := freeUDP(t, host)
			c := Config{Protocol: UDP, Address: addr, Flows: 3, Interval: 50e6, ConnectTimeout: 30e9}
			send := c
			send.Role, send.Rate, send.Datagram, send.Duration = Send, 16e6, 1000, 400e6
			c.Role = Receive
			// The sender starts first: it must wait for the receiver.
			tx, rx := start(t.Context(), send), start(t.Context(), c)
			s, r := both(t, tx, rx)
			// 16 Mbit/s for 0.4 s are 800 datagrams of 1000 bytes. A busy host forgoes some.
			if s.Datagrams == 0 || s.Datagrams > 802 || s.Datagrams+s.Forgone < 780 {
				t.Errorf("%d datagrams sent and %d forgone, want 800 in all", s.Datagrams, s.Forgone)
			}
			if r.Datagrams+r.Lost != s.Datagrams || r.Lost != r.SocketDrops || r.Duplicates != 0 {
				t.Errorf("%d received, %d lost (%d at the socket), %d twice, of %d", r.Datagrams, r.Lost, r.SocketDrops,
					r.Duplicates, s.Datagrams)
			}
			if s.Bytes != s.Datagrams*1000 || r.Bytes != r.Datagrams*1000 || s.Flows != 3 || r.Flows != 3 {
				t.Errorf("%d bytes sent, %d received; flows %d and %d", s.Bytes, r.Bytes, s.Flows, r.Flows)
			}
			if sum(s.Intervals) != s.Bytes || sum(r.Intervals) != r.Bytes || sum(r.IntervalLost) != r.Lost {
				t.Errorf("intervals %v, %v, lost %v", s.Intervals, r.Intervals, r.IntervalLost)
			}
			if r.LatencyOf != OneWay || r.Latency.Count() != r.Datagrams || r.Latency.Max() > 10e9 ||
				r.Latency.Clamped() > 0 {
				t.Errorf("latency of %q, %d samples, %d below 0, at most %d ns", r.LatencyOf, r.Latency.Count(),
					r.Latency.Clamped(), r.Latency.Max())
			}
			if len(r.IntervalLatency) != len(r.Intervals) || r.IntervalLatency[0] <= 0 {
				t.Errorf("latency of intervals %v", r.IntervalLatency)
			}
			if s.Latency != nil || s.LatencyOf != "" {
				t.Error("nothing was sent back, and yet it was timed")
			}
		})
	}
}

// relay forwards the datagrams that change returns for each datagram, and all answers unchanged. It
// returns its address.
func relay(t *testing.T, to string, change func(b []byte) [][]byte) string {
	t.Helper()
	in, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = in.SetReadBuffer(4 << 20)
	var wg sync.WaitGroup
	t.Cleanup(func() { in.Close(); wg.Wait() })
	wg.Go(func() {
		out := map[netip.AddrPort]*net.UDPConn{} // one for each flow
		defer func() {
			for _, c := range out {
				c.Close()
			}
		}()
		b := make([]byte, 65536)
		for {
			n, from, err := in.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			c := out[from]
			if c == nil {
				conn, err := net.Dial("udp", to)
				if err != nil {
					return
				}
				c = conn.(*net.UDPConn)
				out[from] = c
				wg.Go(func() {
					b := make([]byte, 65536)
					for {
						n, err := c.Read(b)
						if errors.Is(err, net.ErrClosed) {
							return
						}
						if err == nil { // otherwise the receiver does not listen yet
							_, _ = in.WriteToUDPAddrPort(b[:n], from)
						}
					}
				})
			}
			for _, d := range change(bytes.Clone(b[:n])) {
				_, _ = c.Write(d)
			}
		}
	})
	return in.LocalAddr().String()
}

// TestDatagramsLostTwiceAndOvertaken loses, duplicates and reorders datagrams. The result must have
// exactly these numbers.
func TestDatagramsLostTwiceAndOvertaken(t *testing.T) {
	for range 20 {
		if n := lostTwiceAndOvertaken(t); n == 0 || t.Failed() {
			return
		}
	}
	t.Error("the host lost datagrams of its own in each of twenty attempts")
}

// lostTwiceAndOvertaken returns how many datagrams the host itself lost. If it lost any, the test
// must be repeated.
func lostTwiceAndOvertaken(t *testing.T) int64 {
	addr := freeUDP(t, "127.0.0.1")
	var lost, twice, overtaken int64
	var held [][]byte
	n := 0
	way := relay(t, addr, func(b []byte) [][]byte {
		if h, err := parse(b); err != nil || h.kind != data && h.kind != echo {
			all := append(held, b) // held datagrams go first
			held = nil
			return all
		}
		n++
		switch {
		case n%10 == 3:
			lost++
			return nil
		case n%10 == 5:
			twice++
			return [][]byte{b, b}
		case n%10 == 7:
			held = append(held, b)
			return nil
		case held != nil:
			overtaken++
			all := append([][]byte{b}, held...)
			held = nil
			return all
		}
		return [][]byte{b}
	})
	rx := start(t.Context(), Config{Role: Receive, Protocol: UDP, Address: addr, Interval: 20e6})
	s, r := both(t, start(t.Context(), Config{Role: Send, Protocol: UDP, Address: way, Rate: 8e6, Datagram: 500,
		Duration: 300e6, ConnectTimeout: 30e9}), rx)
	if lost == 0 || twice == 0 || overtaken == 0 {
		t.Fatalf("of %d datagrams %d were lost, %d came twice, %d were overtaken: nothing to see", n, lost, twice,
			overtaken)
	}
	// On a slow host, the sockets of relay and receiver lose datagrams too.
	if got := s.Datagrams - r.Datagrams; r.Lost != got || r.Lost < lost {
		t.Errorf("lost %d, want %d, of which %d on the way", r.Lost, got, lost)
	}
	if r.Lost > lost {
		return r.Lost - lost
	}
	if r.Duplicates != twice || r.Reordered != overtaken {
		t.Errorf("%d came twice and %d were overtaken, want %d and %d", r.Duplicates, r.Reordered, twice, overtaken)
	}
	if sum(r.IntervalLost) != r.Lost {
		t.Errorf("intervals %v hold not %d lost", r.IntervalLost, r.Lost)
	}
	return 0
}

// TestDatagramsOfAnotherClock checks that the sender measures round trips if the receiver has
// another clock.
func TestDatagramsOfAnotherClock(t *testing.T) {
	addr := freeUDP(t, "127.0.0.1")
	way := relay(t, addr, func(b []byte) [][]byte {
		b[16] ^= 1 // changes the clock's identity
		return [][]byte{b}
	})
	rx := start(t.Context(), Config{Role: Receive, Protocol: UDP, Address: addr, Flows: 2})
	s, r := both(t, start(t.Context(), Config{Role: Send, Protocol: UDP, Address: way, Flows: 2, Rate: 8e6,
		Datagram: 1000, Duration: 300e6, Interval: 50e6, ConnectTimeout: 30e9}), rx)
	if r.Latency != nil {
		t.Errorf("%d one-way times between two clocks", r.Latency.Count())
	}
	// There is at most one sample per ms.
	if s.LatencyOf != RoundTrip || s.Latency.Count() < 10 || s.Latency.Count() > s.Duration/echoEvery+1 ||
		s.Latency.Min() < 1000 {
		t.Errorf("%q: %d samples from %d ns", s.LatencyOf, s.Latency.Count(), s.Latency.Min())
	}
	if len(s.IntervalRTT) != len(s.Intervals) || sum(s.IntervalRTT) == 0 {
		t.Errorf("%d intervals, round trips %v", len(s.Intervals), s.IntervalRTT)
	}
}

// TestDatagramsOfOthers checks that datagrams of other programs are not counted.
func TestDatagramsOfOthers(t *testing.T) {
	addr := freeUDP(t, "127.0.0.1")
	rx := start(t.Context(), Config{Role: Receive, Protocol: UDP, Address: addr})
	other, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	junk := func() {
		var b [100]byte
		for _, h := range []header{{kind: data, run: 7}, {kind: end, run: 7, seq: 9}, {kind: hello, flow: 1, run: 7}} {
			h.put(b[:])
			_, _ = other.Write(b[:])
		}
		_, _ = other.Write([]byte("GET / HTTP/1.1"))
		_, _ = other.Write(nil)
	}
	junk()
	way := relay(t, addr, func(b []byte) [][]byte { junk(); return [][]byte{b} })
	s, r := both(t, start(t.Context(), Config{Role: Send, Protocol: UDP, Address: way, Rate: 1e6, Datagram: 1000,
		Duration: 100e6, ConnectTimeout: 30e9}), rx)
	if r.Datagrams != s.Datagrams || r.Bytes != s.Bytes || r.Lost != 0 || r.Flows != 1 {
		t.Errorf("%d of %d datagrams, %d of %d bytes, %d lost, %d flows", r.Datagrams, s.Datagrams, r.Bytes, s.Bytes,
			r.Lost, r.Flows)
	}
}

func TestDatagramsEnd(t *testing.T) {
	// Nothing listens at this address.
	_, err := Run(t.Context(), Config{Role: Send, Protocol: UDP, Address: freeUDP(t, "127.0.0.1"), Rate: 1e6,
		ConnectTimeout: 50e6})
	errtest.Says(t, "nobody listens", err, "refused")
	// A socket receives, but does not answer.
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	_, err = Run(t.Context(), Config{Role: Send, Protocol: UDP, Address: mute.LocalAddr().String(), Rate: 1e6,
		ConnectTimeout: 50e6})
	errtest.Says(t, "a mute one", err, "no receiver answers")
	// The end of the context is an error only if no flow is open.
	endsEarly(t, UDP, freeUDP(t, "127.0.0.1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := freeUDP(t, "127.0.0.1")
	rx := start(t.Context(), Config{Role: Receive, Protocol: UDP, Address: addr})
	seen := make(chan bool, 1)
	way := relay(t, addr, func(b []byte) [][]byte {
		if h, err := parse(b); err == nil && h.kind == data && h.seq > 10 {
			select {
			case seen <- true:
			default:
			}
		}
		return [][]byte{b}
	})
	tx := start(ctx, Config{Role: Send, Protocol: UDP, Address: way, Rate: 1e6, Datagram: 100, ConnectTimeout: 30e9})
	<-seen
	cancel()
	if s, r := both(t, tx, rx); s.Datagrams < 11 || r.Datagrams != s.Datagrams {
		t.Errorf("%d of %d datagrams", r.Datagrams, s.Datagrams)
	}
	// The sender ends if the receiver ends first.
	addr = freeUDP(t, "127.0.0.1")
	rx = start(t.Context(), Config{Role: Receive, Protocol: UDP, Address: addr, Duration: 50e6})
	s, _ := both(t, start(t.Context(), Config{Role: Send, Protocol: UDP, Address: addr, Rate: 1e6, Datagram: 100,
		ConnectTimeout: 30e9}), rx)
	if !strings.Contains(strings.Join(s.Warnings, "\n"), "a flow ended early: connection refused") {
		t.Errorf("%q", s.Warnings)
	}
}

// TestForgone checks that a late sender sends the datagrams of the last 2 ms and forgoes all older
// ones.
func TestForgone(t *testing.T) {
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	c, addr, err := (Config{Role: Send, Protocol: UDP, Address: mute.LocalAddr().String(), Rate: 8e6,
		Datagram: 100}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := sock.DialUDP(addr)
	if err != nil {
		t.Fatal(err)
	}
	f := &outgoing{fd: fd}
	defer f.close()
	r := &run{cfg: c, clock: thread.StartClock()}
	r.res.Latency = stats.NewHistogram()
	s := &sender{run: r, out: newVolley(100), in: newBatch(), flows: []*outgoing{f}, gap: 1e5, due: 1e6} // 100 µs apart
	if err := s.send(999_999); err != nil || s.bytes != 0 {
		t.Fatalf("%d bytes before they were due, %v", s.bytes, err)
	}
	if err := s.send(1e6 + 350e3); err != nil || f.sent != 4 || s.res.Forgone != 0 { // at 0, 100, 200 and 300 µs
		t.Errorf("%d sent, %d forgone, %v; want 4 and none", f.sent, s.res.Forgone, err)
	}
	// 97 datagrams are due from 0.4 to 10 ms. The 77 that were due before 8 ms are forgone.
	if err := s.send(1e6 + 10e6); err != nil || s.res.Forgone != 77 || f.sent != 4+20 {
		t.Errorf("%d sent, %d forgone, %v", f.sent, s.res.Forgone, err)
	}
}

func TestHeader(t *testing.T) {
	var b [headerBytes]byte
	want := header{kind: data, flow: 999, run: 1 << 63, clock: 2, seq: maxSeq, stamp: 1<<63 - 1}
	want.put(b[:])
	if got, err := parse(b[:]); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for name, spoil := range map[string]func(b []byte) []byte{
		"short": func(b []byte) []byte { return b[:headerBytes-1] },
		"magic": func(b []byte) []byte { b[0]++; return b },
		"kind":  func(b []byte) []byte { b[4] = byte(kinds); return b },
		"none":  func(b []byte) []byte { b[4] = 0; return b },
		"spare": func(b []byte) []byte { b[5] = 1; return b },
		"flow":  func(b []byte) []byte { binary.BigEndian.PutUint16(b[6:], maxFlows); return b },
		"seq":   func(b []byte) []byte { binary.BigEndian.PutUint64(b[24:], maxSeq+1); return b },
		"stamp": func(b []byte) []byte { b[32] = 0x80; return b },
	} {
		if h, err := parse(spoil(bytes.Clone(b[:]))); err == nil || h != (header{}) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	var b [headerBytes]byte
	(&header{kind: echo, flow: 3, run: 5, clock: 6, seq: 7, stamp: 8}).put(b[:])
	f.Add(b[:])
	f.Add(b[:10])
	f.Add([]byte("nln1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parse(b)
		if err != nil {
			return
		}
		var again [headerBytes]byte
		h.put(again[:])
		if !bytes.Equal(again[:], b[:headerBytes]) {
			t.Errorf("%x is written as %x", b[:headerBytes], again)
		}
	})
}

func TestSequence(t *testing.T) {
	for _, tt := range []struct {
		name                        string
		numbers                     []uint64
		sent                        uint64
		came                        uint64
		lost, duplicates, reordered int64
	}{
		{"in order", []uint64{0, 1, 2}, 3, 3, 0, 0, 0},
		{"the last ones lost", []uint64{0, 1, 2}, 10, 3, 7, 0, 0},
		{"the sender has not said", []uint64{0, 5}, 0, 2, 4, 0, 0},
		{"twice", []uint64{0, 0, 1, 0, 1}, 2, 2, 0, 3, 0},
		{"overtaken", []uint64{1, 0, 3, 2}, 4, 4, 0, 0, 2},
		{"overtaken and twice", []uint64{1, 0, 0}, 2, 2, 0, 1, 1},
		{"beyond the window and back", []uint64{0, behind, 1, 0}, behind + 1, 3, behind - 2, 1, 1},
		{"around once", []uint64{3, 3 + behind, 3 + behind}, 0, 2, 2 + behind, 1, 0},
		{"far away", []uint64{5, 1 << 40, 6, 1<<40 - 1}, 0, 3, 1<<40 + 1 - 3, 1, 1},
	} {
		var s sequence
		for _, n := range tt.numbers {
			s.take(n)
		}
		if s.came != tt.came || s.lost(tt.sent) != tt.lost || s.duplicates != tt.duplicates ||
			s.reordered != tt.reordered {
			t.Errorf("%s: %d came, %d lost, %d twice, %d overtaken; want %d, %d, %d, %d", tt.name,
				s.came, s.lost(tt.sent), s.duplicates, s.reordered, tt.came, tt.lost, tt.duplicates, tt.reordered)
		}
	}
}

// FuzzSequence compares a sequence with a map of all numbers that arrived.
func FuzzSequence(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 3, 0, 2, 0, 2, 255, 255, 0, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s sequence
		came := map[uint64]bool{}
		high, duplicates, reordered := uint64(0), int64(0), int64(0)
		for ; len(b) >= 2; b = b[2:] {
			n := uint64(binary.BigEndian.Uint16(b)) * 3 // numbers up to three times behind
			fresh := !came[n] && (n >= high || high-n <= behind)
			switch {
			case !fresh:
				duplicates++
			case n < high:
				reordered++
			}
			if s.take(n) != fresh {
				t.Fatalf("%d after %d: new is %v", n, high, !fresh)
			}
			if fresh {
				came[n] = true
			}
			high = max(high, n+1)
		}
		if int(s.came) != len(came) || s.duplicates != duplicates || s.reordered != reordered ||
			s.lost(0) != int64(high)-int64(len(came)) {
			t.Errorf("%d came, %d twice, %d overtaken; want %d, %d, %d", s.came, s.duplicates, s.reordered, len(came),
				duplicates, reordered)
		}
	})
}

// TestDrainLooksUp sends datagrams faster than the receiver counts them. The receiver must still
// check its context regularly, although there is always another datagram.
func TestDrainLooksUp(t *testing.T) {
	address := freeUDP(t, "127.0.0.1")
	to := netip.MustParseAddrPort(address)
	c, _, err := Config{Role: Receive, Protocol: UDP, Address: address}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := sock.ListenUDP(to)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	roomy(fd)
	out, err := sock.DialUDP(to)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(out)
	v := newVolley(headerBytes + 1)
	const turns = 3
	for n := range uint64(turns * turn) {
		for k := range uint64(batchSize) {
			h := header{kind: data, run: 7, seq: n*batchSize + k}
			if h.seq == 0 {
				h.kind = hello
			}
			h.put(v.heads[k][:])
		}
		if sent, err := v.send(out, batchSize); err != 0 || sent != batchSize {
			t.Fatalf("%d sent: %v", sent, err)
		}
	}
	if n := drops(fd); n > 0 {
		text := fmt.Sprintf("the socket had no room for %d datagrams of %d", n, turns*turn*batchSize)
		if os.Geteuid() != 0 {
			t.Skip(text + ": net.core.rmem_max is too small, and this is not root")
		}
		t.Fatal(text)
	}
	r := &receiver{run: &run{cfg: c, listener: fd, clock: thread.StartClock()}, in: newBatch(),
		sequences: make([]*incoming, 1)}
	for i := range turns {
		busy, err := r.drain()
		if want := int64((i+1)*turn*batchSize - 1); !busy || err != nil || r.res.Datagrams != want { // hello is not counted
			t.Fatalf("after turn %d: %d datagrams, want %d; busy %v, %v", i+1, r.res.Datagrams, want, busy, err)
		}
	}
	if busy, err := r.drain(); busy || err != nil {
		t.Errorf("with nothing there: busy %v, %v", busy, err)
	}
}

// TestGoodbyeOfManyFlows ends eighty flows. Each flow needs two attempts. The sender must end
// them at the same time: one after the other would take longer than goodbye allows.
func TestGoodbyeOfManyFlows(t *testing.T) {
	address := freeUDP(t, "127.0.0.1")
	lost := map[uint16]bool{}
	through := relay(t, address, func(b []byte) [][]byte {
		if h, err := parse(b); err == nil && h.kind == end && !lost[h.flow] {
			lost[h.flow] = true
			return nil
		}
		return [][]byte{b}
	})
	c := Config{Protocol: UDP, Flows: 80, Interval: 50e6, ConnectTimeout: 30e9}
	rx, tx := c, c
	rx.Role, rx.Address = Receive, address
	tx.Role, tx.Address, tx.Rate, tx.Datagram, tx.Duration = Send, through, 1e6, 100, 100e6
	if _, got := both(t, start(t.Context(), tx), start(t.Context(), rx)); len(got.Warnings) > 0 || got.Lost != 0 {
		t.Errorf("%q, %d lost", got.Warnings, got.Lost)
	}
}

// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/test/simcard/bed"
)

// A datagram goes from the lab's client to its SUT.
type datagram struct {
	flow    int // each has a port of its own
	tos     int // DSCP and ECN
	arrived int // tos on arrival
	// place is the datagram's among those that arrived; -1: it did not arrive.
	place          int
	sentAt, hereAt int64
}

// size is the length of the frame of a datagram.
const size = 1442

// carry sends datagrams at once, from a lab's client to its SUT, and returns when no more arrive.
func carry(t *testing.T, l *lab.Lab, six bool, datagrams []datagram) {
	t.Helper()
	runtime.LockOSThread()
	header, to, addr := 14+20+8, l.Config.IPv4(lab.SUT), netip.IPv4Unspecified()
	level, tos, receive := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_RECVTOS
	if six {
		header, to, addr = 14+40+8, l.Config.IPv6(lab.SUT), netip.IPv6Unspecified()
		level, tos, receive = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS
	}
	var receiver int
	bed.Within(t, l.Config.Netns(lab.SUT), func() { receiver = udpSocket(t, addr, 7000) })
	defer unix.Close(receiver)
	senders := map[int]int{}
	bed.Within(t, l.Config.Netns(lab.Client), func() {
		for _, d := range datagrams {
			if senders[d.flow] == 0 {
				senders[d.flow] = udpSocket(t, addr, 0)
			}
		}
	})
	for _, fd := range senders {
		defer unix.Close(fd)
		must.Do(t, unix.Connect(fd, sockaddr(to, 7000)))
		must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<30))
	}
	must.Do(t, unix.SetsockoptInt(receiver, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<30))
	must.Do(t, unix.SetsockoptInt(receiver, level, receive, 1))

	b := make([]byte, size-header)
	for i := range datagrams {
		d := &datagrams[i]
		d.place = -1
		must.Do(t, unix.SetsockoptInt(senders[d.flow], level, tos, d.tos))
		binary.NativeEndian.PutUint64(b, uint64(i))
		d.sentAt = now()
		_, err := unix.Write(senders[d.flow], b)
		must.Do(t, err)
	}
	must.Do(t, unix.SetsockoptTimeval(receiver, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}))
	oob := make([]byte, 64)
	for place := 0; ; place++ {
		n, oobn, _, _, err := unix.Recvmsg(receiver, b, oob, 0)
		if err == unix.EAGAIN {
			return
		}
		must.Do(t, err)
		if n != len(b) {
			t.Fatalf("a datagram of %d bytes, want %d", n, len(b))
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		must.Do(t, err)
		d := &datagrams[binary.NativeEndian.Uint64(b)]
		d.place, d.hereAt = place, now()
		// A byte with IPv4, an int with IPv6, on a machine of little endian.
		d.arrived = int(messages[0].Data[0])
	}
}

func udpSocket(t *testing.T, addr netip.Addr, port int) int {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	must.Do(t, unix.Bind(fd, sockaddr(addr, port)))
	return fd
}

func sockaddr(addr netip.Addr, port int) unix.Sockaddr {
	if addr.Is6() {
		return &unix.SockaddrInet6{Port: port, Addr: addr.As16()}
	}
	return &unix.SockaddrInet4{Port: port, Addr: addr.As4()}
}

// TestDelay: a frame takes the link's delay longer, in each direction, and no longer.
func TestDelay(t *testing.T) {
	if !inGuest(t) {
		return
	}
	const delay = 12_800 // ns, a multiple of netem's 64
	var took [2]int64
	for i, d := range []int64{0, delay} {
		l := labtest.Up(t, lab.Config{Name: fmt.Sprint("delay", i), LinkRate: 1e9, LinkBurst: lab.LeastBurst(0), Delay: d})
		one := []datagram{{}}
		carry(t, l, false, one)
		took[i] = one[0].hereAt - one[0].sentAt
		if back := answered(t, l); i == 1 && !near(back, 2*delay, 2000) {
			t.Errorf("there and back took %d ns, want %d", back, 2*delay)
		}
	}
	if got := took[1] - took[0]; !near(got, delay, 64) {
		t.Errorf("a frame took %d ns longer, want %d", got, delay)
	}
}

// answered returns how long a datagram takes to the SUT and back.
func answered(t *testing.T, l *lab.Lab) int64 {
	var client, sut int
	bed.Within(t, l.Config.Netns(lab.SUT), func() { sut = udpSocket(t, netip.IPv4Unspecified(), 7001) })
	bed.Within(t, l.Config.Netns(lab.Client), func() { client = udpSocket(t, netip.IPv4Unspecified(), 0) })
	defer unix.Close(sut)
	defer unix.Close(client)
	must.Do(t, unix.Connect(client, sockaddr(l.Config.IPv4(lab.SUT), 7001)))
	began := now()
	_, err := unix.Write(client, []byte{0})
	must.Do(t, err)
	b := make([]byte, 1)
	_, from, err := unix.Recvfrom(sut, b, 0)
	must.Do(t, err)
	must.Do(t, unix.Sendto(sut, b, 0, from))
	_, err = unix.Read(client, b)
	must.Do(t, err)
	return now() - began
}

func near(got, want, by int64) bool { return got >= want-by && got <= want+by }

// TestCosts: the packets of a receive queue take their time one after the other, the first of them also
// the wake-up, and those of different queues take theirs at the same time.
func TestCosts(t *testing.T) {
	if !inGuest(t) {
		return
	}
	const cost, wakeup, delay, n = 5000, 30_000, 12_800, 64
	l := labtest.Up(t, lab.Config{LinkRate: 10e9, LinkBurst: lab.LeastBurst(0), PacketCost: cost, WakeupCost: wakeup,
		Delay: delay})
	one := make([]datagram, n)
	carry(t, l, false, one) // not counted: the first timer of a qdisc in a guest comes up to a tick late
	carry(t, l, false, one)
	for i, d := range one {
		if got, want := d.hereAt-one[0].sentAt, int64(delay+wakeup+cost*(i+1)); !near(got, want, resolution) {
			t.Errorf("datagram %d arrived after %d ns, want %d", i, got, want)
		}
	}
	many, last := make([]datagram, n), int64(0)
	for i := range many {
		many[i].flow = i
	}
	carry(t, l, false, many)
	for _, d := range many {
		last = max(last, d.hereAt-many[0].sentAt-delay-wakeup)
	}
	if last < n/8*cost || last > n/2*cost {
		t.Errorf("%d flows on 8 queues took %d ns, want %d if they were equally many on each", n, last, n/8*cost)
	}
}

// TestRate: frames follow each other at the link's rate, at any of them. The bucket is a frame, rounded
// up to 64 ns.
func TestRate(t *testing.T) {
	if !inGuest(t) {
		return
	}
	const n, tick = 100, 64
	for i, rate := range []uint64{10e6, 10e9, 100e9, 400e9} {
		l := labtest.Up(t, lab.Config{Name: fmt.Sprint("rate", i), LinkRate: rate, LinkBurst: lab.LeastBurst(0)})
		datagrams := make([]datagram, n)
		carry(t, l, false, datagrams) // not counted, as above
		carry(t, l, false, datagrams)
		took := func(bytes int) int64 { return int64(float64(bytes) * 8e9 / float64(rate)) }
		bucket := (took(lab.LeastBurst(0)) + tick) / tick * tick
		got, want := datagrams[n-1].hereAt-datagrams[0].sentAt, took(n*size)-bucket
		if !near(got, want, 2*tick+n) { // and 1 ns for each reading of the clock
			t.Errorf("%d frames at %d bit/s took %d ns, want %d", n, rate, got, want)
		}
	}
}

// TestSwitchMarks: the switch marks what finds so many bytes in its buffer and can carry a mark, and
// drops only what finds no room.
func TestSwitchMarks(t *testing.T) {
	if !inGuest(t) {
		return
	}
	const ect, ce, mark, buffer = 2, 3, 30_000, 100_000
	l := labtest.Up(t, lab.Config{LinkRate: 10e6, LinkBurst: lab.LeastBurst(0), SwitchBuffer: buffer, SwitchMark: mark})
	for _, tt := range []struct{ sent, marked int }{{ect, ce}, {0, 0}} {
		datagrams := make([]datagram, 100)
		for i := range datagrams {
			datagrams[i].tos = tt.sent
		}
		carry(t, l, false, datagrams)
		// The first leaves at once: the link's bucket is full.
		for i, d := range datagrams {
			waiting, want := max(0, i-1)*size, tt.sent
			if waiting >= mark {
				want = tt.marked
			}
			if fits := waiting+size <= buffer; fits != (d.place >= 0) || fits && d.arrived != want {
				t.Errorf("sent %d as %#x behind %d bytes: place %d, arrived as %#x, want %#x", i, d.tos, waiting, d.place,
					d.arrived, want)
			}
		}
	}
}

// TestSwitchFirst: packets with a DSCP that goes first do not wait for the others.
func TestSwitchFirst(t *testing.T) {
	if !inGuest(t) {
		return
	}
	const ef, cs5 = 46, 40
	l := labtest.Up(t, lab.Config{LinkRate: 10e6, LinkBurst: lab.LeastBurst(0), SwitchFirst: []int{ef, 0}})
	for _, six := range []bool{false, true} {
		datagrams := make([]datagram, 60)
		for i := range datagrams {
			datagrams[i].tos = cs5 << 2
		}
		datagrams[40].tos, datagrams[50].tos = ef<<2, 0
		carry(t, l, six, datagrams)
		// Only the first leaves before: the link's bucket is full.
		if a, b := datagrams[40].place, datagrams[50].place; a != 1 || b != 2 {
			t.Errorf("IPv6 %v: arrived as number %d and %d, want 1 and 2", six, a, b)
		}
		if last := datagrams[59]; last.place != 59 || last.arrived != cs5<<2 {
			t.Errorf("IPv6 %v: the last arrived as number %d and %#x", six, last.place, last.arrived)
		}
	}
}

// TestSwitchBufferChanges: the buffers of both classes get the new size.
func TestSwitchBufferChanges(t *testing.T) {
	if !inGuest(t) {
		return
	}
	l := labtest.Up(t, lab.Config{LinkRate: 10e6, LinkBurst: lab.LeastBurst(0), SwitchFirst: []int{46}, SwitchMark: 5000})
	must.Do(t, l.SetSwitchBuffer(int(10*size)))
	for _, tos := range []int{0, 46 << 2} {
		datagrams := make([]datagram, 20)
		for i := range datagrams {
			datagrams[i].tos = tos
		}
		carry(t, l, false, datagrams)
		arrived := 0
		for _, d := range datagrams {
			if d.place >= 0 {
				arrived++
			}
		}
		if arrived != 11 { // ten, and the one that leaves at once
			t.Errorf("%d of 20 with TOS %#x arrived, want 11", arrived, tos)
		}
	}
}

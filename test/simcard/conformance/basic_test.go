// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTransfer moves data over TCP both ways and compares it, with small rings,
// so that they fill.
func TestTransfer(t *testing.T) {
	plug(t, "queues=4", "channels=4")
	sh(t, "ethtool -G sim0 rx 64 tx 64")
	before := stats(t)
	data := make([]byte, 4<<20)
	rand.Read(data)
	l, err := net.Listen("tcp", cardAddr.String()+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	echoed := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(c, c)
			c.Close()
		}
		echoed <- err
	}()
	var c *net.TCPConn
	behind(t, func() { c, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)) })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	back, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-echoed; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back, data) {
		t.Errorf("%d bytes came back, and not those sent", len(back))
	}
	for _, name := range []string{"rx_queue_%d_bytes", "tx_queue_%d_bytes"} {
		if got := sum(perQueue(t, before, name, 4)); got < uint64(len(data)) {
			t.Errorf("%s: %d in all, sent %d", name, got, len(data))
		}
	}
}

// TestChannels changes the number of channels under traffic.
func TestChannels(t *testing.T) {
	plug(t, "queues=8", "channels=8")
	for _, n := range []int{1, 8, 3, 6} {
		sh(t, fmt.Sprintf("ethtool -L sim0 combined %d", n))
		before := stats(t)
		var flows []flow
		for i := range 64 {
			flows = append(flows, in(uint16(20000+i*97), uint16(9+i%5)))
		}
		send(t, 1, flows...)
		for i, c := range perQueue(t, before, "rx_queue_%d_packets", 8) {
			if (c > 0) != (i < n) {
				t.Errorf("%d channels: queue %d received %d", n, i, c)
			}
		}
		if got := strings.Count(read(t, "/proc/interrupts"), "simcard-sim0-TxRx-"); got != n {
			t.Errorf("%d channels: %d interrupts", n, got)
		}
	}
	if out := refused(t, "ethtool -L sim0 combined 9"); !strings.Contains(out, "exceeds maximum") {
		t.Error(out)
	}
	param(t, "no_shrink", "1")
	refused(t, "ethtool -L sim0 combined 2")
}

// TestShrinkBelowTable: what a table or a rule uses is not taken away.
func TestShrinkBelowTable(t *testing.T) {
	plug(t, "queues=8", "channels=8")
	sh(t, "ethtool -N sim0 flow-type udp4 dst-port 11 action 7 loc 3")
	refused(t, "ethtool -L sim0 combined 7")
	sh(t, "ethtool -N sim0 delete 3")
	sh(t, "ethtool -L sim0 combined 7")
	sh(t, "ethtool -X sim0 equal 5")
	if out := refused(t, "ethtool -L sim0 combined 4"); !strings.Contains(out, "too low") {
		t.Error(out)
	}
	sh(t, "ethtool -L sim0 combined 5")
	sh(t, "ethtool -X sim0 default")
	sh(t, "ethtool -L sim0 combined 2")
}

func TestRings(t *testing.T) {
	plug(t, "queues=2")
	sh(t, "ethtool -G sim0 rx 1000 tx 100")
	out := sh(t, "ethtool -g sim0")
	_, current, _ := strings.Cut(out, "Current hardware settings:")
	for _, want := range []string{"RX:\t\t1024", "TX:\t\t128"} {
		if !strings.Contains(strings.ReplaceAll(current, "  ", ""), want) {
			t.Errorf("no %q in %s", want, current)
		}
	}
	refused(t, "ethtool -G sim0 rx 8")
	refused(t, "ethtool -G sim0 rx 8192")
}

// TestDropsWhenFull: the receive ring's size is obeyed.
func TestDropsWhenFull(t *testing.T) {
	plug(t, "queues=1", "channels=1")
	sh(t, "ethtool -G sim0 rx 64")
	sh(t, "ethtool -C sim0 rx-usecs 8000")
	before := stats(t)
	f := in(1000, 9)
	var c *net.UDPConn
	var err error
	behind(t, func() { c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(f.src), net.UDPAddrFromAddrPort(f.dst)) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until(t, "a drop", func() bool {
		for range 200 {
			c.Write([]byte("x"))
		}
		return perQueue(t, before, "rx_queue_%d_drops", 1)[0] > 0
	})
}

// TestModeration: a longer wait means fewer interrupts for the same frames.
func TestModeration(t *testing.T) {
	plug(t, "queues=2", "channels=2")
	sh(t, "ethtool -X sim0 equal 1")
	rate := func() float64 {
		before := stats(t)
		for range 5 {
			send(t, 40, in(1000, 9))
		}
		return float64(perQueue(t, before, "queue_%d_interrupts", 1)[0]) / float64(perQueue(t, before, "rx_queue_%d_packets", 1)[0])
	}
	sh(t, "ethtool -C sim0 rx-usecs 0 tx-usecs 0")
	often := rate()
	sh(t, "ethtool --per-queue sim0 queue_mask 0x1 --coalesce rx-usecs 8000 tx-usecs 8000")
	rare := rate()
	if rare > often/2 {
		t.Errorf("interrupts per frame: %.2f at once, %.2f with 8 ms", often, rare)
	}
	out := sh(t, "ethtool --per-queue sim0 queue_mask 0x3 --show-coalesce")
	if !strings.Contains(out, "rx-usecs: 8000") || !strings.Contains(out, "rx-usecs: 0") {
		t.Errorf("per queue: %s", out)
	}
	refused(t, "ethtool -C sim0 rx-usecs 9000")
}

// TestAffinity: the processor that an interrupt is sent to is the one that
// handles what came in.
func TestAffinity(t *testing.T) {
	plug(t, "queues=2", "channels=1")
	irq := ""
	for line := range strings.Lines(read(t, "/proc/interrupts")) {
		if strings.Contains(line, "simcard-sim0-TxRx-0") {
			irq, _, _ = strings.Cut(strings.TrimSpace(line), ":")
		}
	}
	if irq == "" {
		t.Fatal("/proc/interrupts has no simcard-sim0-TxRx-0")
	}
	// The kernel notes the processor of connected sockets only.
	f := in(1000, 77)
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(f.dst), net.UDPAddrFromAddrPort(f.src))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, cpu := range []string{"0", "1", "0"} {
		write(t, "/proc/irq/"+irq+"/smp_affinity_list", cpu)
		if got := read(t, "/proc/irq/"+irq+"/effective_affinity_list"); got != cpu {
			t.Errorf("effective affinity %s, want %s", got, cpu)
		}
		send(t, 1, f)
		if _, err := c.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		var got int
		raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_INCOMING_CPU) })
		if err != nil || fmt.Sprint(got) != cpu {
			t.Errorf("received on processor %d (%v), want %s", got, err, cpu)
		}
	}
}

// TestUnplug takes the module away under traffic, again and again.
func TestUnplug(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			plug(t, "queues=4", "channels=4", "cards=2", "speed=100")
			sink(t, 5001, 5002)
			flood(t, []uint16{5001, 5002}, nil, func() bool {
				return sum(perQueue(t, map[string]uint64{}, "tx_queue_%d_packets", 4)) > 200
			})
		})
	}
}

func TestBadParameters(t *testing.T) {
	module := os.Getenv("NICLANE_SIMCARD")
	if module == "" {
		t.Skip("NICLANE_SIMCARD does not name the module: run it by go run ./test/simcard/run")
	}
	f, err := os.Open(module)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range []string{"queues=0", "queues=257", "channels=9", "indir=100", "contexts=0", "cards=17", "speed=0"} {
		if err := unix.FinitModule(int(f.Fd()), p, 0); err != unix.EINVAL {
			t.Errorf("%s: %v, want %v", p, err, unix.EINVAL)
			unix.DeleteModule("simcard", 0)
		}
	}
}

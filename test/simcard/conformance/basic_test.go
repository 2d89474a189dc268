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

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// TestTransfer sends data over TCP in both directions and compares what arrives. The rings are
// small, so that they become full.
func TestTransfer(t *testing.T) {
	bed.Plug(t, "queues=4", "channels=4")
	bed.Sh(t, "ethtool -G sim0 rx 64 tx 64")
	before := bed.Stats(t)
	data := make([]byte, 4<<20)
	rand.Read(data)
	l, err := net.Listen("tcp", bed.CardAddr.String()+":7000")
	must.Do(t, err)
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
	bed.Behind(t, func() { c, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)) })
	must.Do(t, err)
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	back, err := io.ReadAll(c)
	must.Do(t, err)
	must.Do(t, <-echoed)
	if !bytes.Equal(back, data) {
		t.Errorf("%d bytes came back, and not those sent", len(back))
	}
	for _, name := range []string{"rx_queue_%d_bytes", "tx_queue_%d_bytes"} {
		if got := bed.Sum(bed.PerQueue(t, before, name, 4)); got < uint64(len(data)) {
			t.Errorf("%s: %d in all, sent %d", name, got, len(data))
		}
	}
}

// TestChannels changes the number of channels while packets arrive.
func TestChannels(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8")
	for _, n := range []int{1, 8, 3, 6} {
		bed.Sh(t, fmt.Sprintf("ethtool -L sim0 combined %d", n))
		before := bed.Stats(t)
		// As in bed.ToAll, but to several ports.
		var flows []bed.Flow
		for i := range 256 {
			flows = append(flows, bed.In(uint16(1024+i*251), uint16(9+i%5)))
		}
		bed.Send(t, 1, flows...)
		for i, c := range bed.PerQueue(t, before, "rx_queue_%d_packets", 8) {
			if (c > 0) != (i < n) {
				t.Errorf("%d channels: queue %d received %d", n, i, c)
			}
		}
		if got := strings.Count(bed.Read(t, "/proc/interrupts"), "simcard-sim0-TxRx-"); got != n {
			t.Errorf("%d channels: %d interrupts", n, got)
		}
	}
	bed.Says(t, bed.Refused(t, "ethtool -L sim0 combined 9"), "exceeds maximum")
	bed.Param(t, "no_shrink", "1")
	bed.Refused(t, "ethtool -L sim0 combined 2")
}

// TestShrinkBelowTable checks that channels cannot be removed while a table or a rule uses them.
func TestShrinkBelowTable(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8")
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 11 action 7 loc 3")
	bed.Refused(t, "ethtool -L sim0 combined 7")
	bed.Sh(t, "ethtool -N sim0 delete 3")
	bed.Sh(t, "ethtool -L sim0 combined 7")
	bed.Sh(t, "ethtool -X sim0 equal 5")
	bed.Says(t, bed.Refused(t, "ethtool -L sim0 combined 4"), "too low")
	bed.Sh(t, "ethtool -L sim0 combined 5")
	bed.Sh(t, "ethtool -X sim0 default")
	bed.Sh(t, "ethtool -L sim0 combined 2")
}

func TestRings(t *testing.T) {
	bed.Plug(t, "queues=2")
	bed.Sh(t, "ethtool -G sim0 rx 1000 tx 100")
	out := bed.Sh(t, "ethtool -g sim0")
	_, current, _ := strings.Cut(out, "Current hardware settings:")
	for _, want := range []string{"RX:\t\t1024", "TX:\t\t128"} {
		if !strings.Contains(strings.ReplaceAll(current, "  ", ""), want) {
			t.Errorf("no %q in %s", want, current)
		}
	}
	bed.Refused(t, "ethtool -G sim0 rx 8")
	bed.Refused(t, "ethtool -G sim0 rx 8192")
}

// TestDropsWhenFull checks that the receive ring has the size that was set, and drops the frames
// beyond it.
func TestDropsWhenFull(t *testing.T) {
	bed.Plug(t, "queues=1", "channels=1")
	bed.Sh(t, "ethtool -G sim0 rx 64")
	bed.Sh(t, "ethtool -C sim0 rx-usecs 8000")
	before := bed.Stats(t)
	var c *net.UDPConn
	bed.Behind(t, func() { c = bed.In(1000, 9).Dial(t) })
	defer c.Close()
	bed.Until(t, "a drop", func() bool {
		for range 200 {
			c.Write([]byte("x"))
		}
		return bed.PerQueue(t, before, "rx_queue_%d_drops", 1)[0] > 0
	})
}

// TestModeration checks that a longer delay causes fewer interrupts for the same number of frames.
func TestModeration(t *testing.T) {
	bed.Plug(t, "queues=2", "channels=2")
	bed.Sh(t, "ethtool -X sim0 equal 1")
	rate := func() float64 {
		before := bed.Stats(t)
		for range 5 {
			bed.Send(t, 40, bed.In(1000, 9))
		}
		return float64(bed.PerQueue(t, before, "queue_%d_interrupts", 1)[0]) / float64(bed.PerQueue(t, before,
			"rx_queue_%d_packets", 1)[0])
	}
	bed.Sh(t, "ethtool -C sim0 rx-usecs 0 tx-usecs 0")
	often := rate()
	bed.Sh(t, "ethtool --per-queue sim0 queue_mask 0x1 --coalesce rx-usecs 8000 tx-usecs 8000")
	rare := rate()
	if rare > often/2 {
		t.Errorf("interrupts per frame: %.2f at once, %.2f with 8 ms", often, rare)
	}
	out := bed.Sh(t, "ethtool --per-queue sim0 queue_mask 0x3 --show-coalesce")
	if !strings.Contains(out, "rx-usecs: 8000") || !strings.Contains(out, "rx-usecs: 0") {
		t.Errorf("per queue: %s", out)
	}
	bed.Refused(t, "ethtool -C sim0 rx-usecs 9000")
}

// TestAffinity checks that received packets are handled on the processor of their queue's
// interrupt.
func TestAffinity(t *testing.T) {
	bed.Plug(t, "queues=2", "channels=1")
	irq := ""
	for line := range strings.Lines(bed.Read(t, "/proc/interrupts")) {
		if strings.Contains(line, "simcard-sim0-TxRx-0") {
			irq, _, _ = strings.Cut(strings.TrimSpace(line), ":")
		}
	}
	if irq == "" {
		t.Fatal("/proc/interrupts has no simcard-sim0-TxRx-0")
	}
	// The socket must be connected: the kernel records the processor only for connected sockets.
	f := bed.In(1000, 77)
	c := f.Back().Dial(t)
	defer c.Close()
	raw, err := c.SyscallConn()
	must.Do(t, err)
	for _, cpu := range []string{"0", "1", "0"} {
		bed.Write(t, "/proc/irq/"+irq+"/smp_affinity_list", cpu)
		if got := bed.Read(t, "/proc/irq/"+irq+"/effective_affinity_list"); got != cpu {
			t.Errorf("effective affinity %s, want %s", got, cpu)
		}
		bed.Send(t, 1, f)
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

// TestUnplug removes the module while the card sends, twice.
func TestUnplug(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bed.Plug(t, "queues=4", "channels=4", "cards=2", "speed=100")
			bed.Sink(t, 5001, 5002)
			bed.Flood(t, []uint16{5001, 5002}, nil, func() bool {
				return bed.Sum(bed.PerQueue(t, map[string]uint64{}, "tx_queue_%d_packets", 4)) > 200
			})
		})
	}
}

func TestBadParameters(t *testing.T) {
	f, err := os.Open(bed.Guest(t))
	must.Do(t, err)
	defer f.Close()
	for _, p := range []string{"queues=0", "queues=257", "channels=9", "indir=100", "contexts=0", "cards=17",
		"speed=0"} {
		if err := unix.FinitModule(int(f.Fd()), p, 0); err != unix.EINVAL {
			t.Errorf("%s: %v, want %v", p, err, unix.EINVAL)
			unix.DeleteModule("simcard", 0)
		}
	}
}

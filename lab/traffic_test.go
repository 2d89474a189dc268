// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/device"
)

func openCard(t *testing.T, l *Lab) *emucard.Card {
	t.Helper()
	c, err := emucard.Open(l.Config.MAC(SUT))
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// A conversation is a TCP connection from a host to the SUT.
type conversation struct {
	near, far net.Conn // the ends of the connection: near at the host, far at the SUT
	napi      int      // NAPI ID of the last packet that the SUT received
}

func listen(t *testing.T, l *Lab, addr netip.Addr, port uint16) net.Listener {
	t.Helper()
	var ln net.Listener
	on(t, l, SUT, func() (err error) {
		ln, err = net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
		return err
	})
	t.Cleanup(func() { ln.Close() })
	return ln
}

func converse(t *testing.T, l *Lab, host string, ln net.Listener) *conversation {
	t.Helper()
	c := &conversation{}
	on(t, l, host, func() (err error) {
		c.near, err = net.Dial("tcp", ln.Addr().String())
		return err
	})
	t.Cleanup(func() { c.near.Close() })
	var err error
	if c.far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.far.Close() })
	c.say(t)
	return c
}

// say sends one byte in each direction and updates napi.
func (c *conversation) say(t *testing.T) {
	t.Helper()
	must.Do(t, c.exchange())
	c.napi = option(t, c.far, unix.SO_INCOMING_NAPI_ID)
}

func (c *conversation) exchange() error {
	b := []byte{1}
	for _, way := range [][2]net.Conn{{c.near, c.far}, {c.far, c.near}} {
		if _, err := way[0].Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(way[1], b); err != nil {
			return err
		}
	}
	return nil
}

// datagrams returns a new UDP socket on a host.
func datagrams(t *testing.T, l *Lab, host, addr string) (c net.PacketConn) {
	t.Helper()
	on(t, l, host, func() (err error) {
		c, err = net.ListenPacket("udp", addr)
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// counters returns the counters of the card's receive and transmit queues.
func counters(t *testing.T, c *emucard.Card) (rx, tx []emucard.Counter) {
	t.Helper()
	rx, tx, err := c.Stats()
	must.Do(t, err)
	return rx, tx
}

func fill(queues ...int) []int {
	var table []int
	for len(table) < emucard.TableSize {
		table = append(table, queues...)
	}
	return table[:emucard.TableSize]
}

// TestSpread: without rules, connections spread over the SUT's queues, and each queue has a NAPI of
// its own.
func TestSpread(t *testing.T) {
	l := raise(t, Config{})
	for _, addr := range []netip.Addr{l.Config.IPv4(SUT), l.Config.IPv6(SUT)} {
		ln := listen(t, l, addr, 8000)
		napis := map[int]int{}
		for range 64 {
			napis[converse(t, l, Client, ln).napi]++
		}
		if napis[0] > 0 || len(napis) < 5 {
			t.Errorf("%v: connections by NAPI: %v; want at least 5 of 8, and not 0, which is none", addr, napis)
		}
	}
}

// TestFurther: the other hosts reach further addresses of the SUT, and with Frames its port hands no TSO
// units to the card.
func TestFurther(t *testing.T) {
	l := raise(t, Config{Frames: true, Addresses: []netip.Addr{further, netip.MustParseAddr("2001:db8::7")}})
	for _, addr := range l.Config.Addresses {
		ln := listen(t, l, addr, 8000)
		for _, host := range []string{Client, Noise} {
			converse(t, l, host, ln)
		}
	}
	on(t, l, SUT, func() error {
		c, err := ethtool.Open()
		if err != nil {
			return err
		}
		defer c.Close()
		have, err := c.Features(Port)
		for name, f := range have {
			if f.On && (strings.HasPrefix(name, "tx-tcp") || name == "tx-udp-segmentation") {
				t.Errorf("%s is on", name)
			}
		}
		return err
	})
}

// TestQueueIsNAPI: each queue has a NAPI of its own, and no other NAPI polls it.
func TestQueueIsNAPI(t *testing.T) {
	l := raise(t, Config{})
	c := openCard(t, l)
	ln := listen(t, l, l.Config.IPv4(SUT), 8000)
	seen := map[int]int{}
	for q := range l.Config.Queues {
		must.Do(t, c.SetRSS(0, fill(q)))
		a, b := converse(t, l, Client, ln), converse(t, l, Noise, ln)
		if other, ok := seen[a.napi]; ok || a.napi != b.napi || a.napi == 0 {
			t.Errorf("queue %d: NAPIs %d and %d (queue %d has it too: %v)", q, a.napi, b.napi, other, ok)
		}
		seen[a.napi] = q
	}
}

// TestRuleMovesConnection: a new rule moves an existing connection to another queue. This works
// only if nothing on the way has cached the connection's queue.
func TestRuleMovesConnection(t *testing.T) {
	l := raise(t, Config{})
	c := openCard(t, l)
	must.Do(t, c.SetRSS(0, fill(0)))
	ln := listen(t, l, l.Config.IPv6(SUT), 8000)
	v := converse(t, l, Client, ln)
	before := v.napi
	must.Do(t, c.CreateContext(1, fill(7)))
	r := emucard.Rule{Match: device.Match{Family: 6, Protocol: "tcp", LocalPort: 8000}, Context: 1}
	must.Do(t, c.AddRule(r))
	v.say(t)
	moved := v.napi
	if moved == before || moved == 0 {
		t.Errorf("NAPI %d before the rule, %d after", before, moved)
	}
	if _, err := c.DeleteRule(r.Match); err != nil {
		t.Fatal(err)
	}
	v.say(t)
	if v.napi != before {
		t.Errorf("NAPI %d after the rule's end, %d before the rule", v.napi, before)
	}
}

// TestCountersExact: a rule leads the datagrams of a port to a queue. If n datagrams are sent, the
// card counts n packets on this queue, and none on the others.
func TestCountersExact(t *testing.T) {
	const n, size = 200, 100
	l := raise(t, Config{})
	c := openCard(t, l)
	for i, tt := range []struct {
		name   string
		family int
		addr   netip.Addr
		frame  uint64
	}{
		{"ipv4", 4, l.Config.IPv4(SUT), 14 + 20 + 8 + size},
		{"ipv6", 6, l.Config.IPv6(SUT), 14 + 40 + 8 + size},
	} {
		t.Run(tt.name, func(t *testing.T) {
			queue := 5 + i
			r := emucard.Rule{Location: i, Match: device.Match{Family: tt.family, Protocol: "udp", LocalPort: 9000},
				Queue: queue}
			must.Do(t, c.AddRule(r))
			to := netip.AddrPortFrom(tt.addr, 9000)
			server, client := datagrams(t, l, SUT, to.String()), datagrams(t, l, Client, "")
			buf := make([]byte, size)
			acquaint(t, client, server, to, buf)
			before, _ := counters(t, c)
			for range n {
				if _, err := client.WriteTo(buf, net.UDPAddrFromAddrPort(to)); err != nil {
					t.Fatal(err)
				}
				if _, _, err := server.ReadFrom(buf); err != nil {
					t.Fatal(err)
				}
			}
			after, _ := counters(t, c)
			before[queue].Packets += n
			before[queue].Bytes += n * tt.frame
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("receive counters (-want +got):\n%s", diff)
			}
		})
	}
}

// acquaint sends datagrams until one arrives. It then receives all that arrive. The first ones may
// be lost, while the address of the neighbour is being resolved. In the end, acquaint sets a
// deadline of one minute on the server's socket.
func acquaint(t *testing.T, client, server net.PacketConn, to netip.AddrPort, buf []byte) {
	t.Helper()
	sent, came := 0, 0
	for deadline := time.Now().Add(time.Minute); came < 1; {
		if time.Now().After(deadline) {
			t.Fatalf("nothing of %d datagrams to %v arrived", sent, to)
		}
		if _, err := client.WriteTo(buf, net.UDPAddrFromAddrPort(to)); err != nil {
			t.Fatal(err)
		}
		sent++
		came += take(t, server, buf, 100*time.Millisecond)
	}
	for came < sent {
		more := take(t, server, buf, time.Second)
		if more == 0 {
			break // the others were lost before the neighbour's address was known
		}
		came += more
	}
	must.Do(t, server.SetReadDeadline(time.Now().Add(time.Minute)))
}

// take receives at most one datagram within a time. It returns 1 if one came, else 0.
func take(t *testing.T, server net.PacketConn, buf []byte, within time.Duration) int {
	t.Helper()
	must.Do(t, server.SetReadDeadline(time.Now().Add(within)))
	_, _, err := server.ReadFrom(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0
	}
	must.Do(t, err)
	return 1
}

// TestTransmitQueue: the card counts a packet on the transmit queue that the SUT has chosen, here
// by XPS.
func TestTransmitQueue(t *testing.T) {
	l := raise(t, Config{})
	c := openCard(t, l)
	ln := listen(t, l, l.Config.IPv4(SUT), 8000)
	online, err := onlineCPUs()
	must.Do(t, err)
	for _, queue := range []int{3, 6} {
		for q := range l.Config.Queues {
			mask := "0"
			if q == queue {
				mask = device.FormatMask(online)
			}
			run(t, l, SUT, Options{}, "sh", "-c", fmt.Sprintf("echo %s > /sys/class/net/lane0/queues/tx-%d/xps_cpus",
				mask, q))
		}
		_, before := counters(t, c)
		converse(t, l, Client, ln)
		_, after := counters(t, c)
		for q := range after {
			if moved := after[q] != before[q]; moved != (q == queue) {
				t.Errorf("XPS to queue %d: counters of queue %d moved: %v", queue, q, moved)
			}
		}
	}
}

// TestSymmetric: with XPS by receive queue, the answers of a connection leave on the queue on which
// its packets arrive.
func TestSymmetric(t *testing.T) {
	l := raise(t, Config{})
	c := openCard(t, l)
	for q := range l.Config.Queues {
		run(t, l, SUT, Options{}, "sh", "-c", fmt.Sprintf("echo %x > /sys/class/net/lane0/queues/tx-%d/xps_rxqs", 1<<q,
			q))
	}
	ln := listen(t, l, l.Config.IPv4(SUT), 8000)
	for queue := range l.Config.Queues {
		must.Do(t, c.SetRSS(0, fill(queue)))
		v := converse(t, l, Client, ln)
		_, before := counters(t, c)
		v.say(t)
		_, after := counters(t, c)
		for q := range after {
			if moved := after[q] != before[q]; moved != (q == queue) {
				t.Errorf("received on queue %d: transmit counters of queue %d moved: %v", queue, q, moved)
			}
		}
	}
}

// TestSwitch: the switch delivers a packet only to the host that has the destination address.
func TestSwitch(t *testing.T) {
	l := raise(t, Config{})
	count := func(host string) string {
		return run(t, l, host, Options{}, "cat", "/sys/class/net/"+devOf(host)+"/statistics/rx_packets")
	}
	before := count(Noise)
	converse(t, l, Client, listen(t, l, l.Config.IPv4(SUT), 8000))
	if after := count(Noise); after != before {
		t.Errorf("the noise source received %s packets, and %s after the client spoke to the SUT", before, after)
	}
}

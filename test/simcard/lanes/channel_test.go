// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// ice are parameters of a card that behaves like ice with traffic classes.
var ice = []string{"driver=ice", "queues=8", "channels=6", "contexts=1", "pow2=1", "mqprio_takes_rules=1",
	"mqprio_resizes=1", "speed=1000"}

// classLanes is a lanes file with two lanes. One has a ceiling, which is half of what it could
// send.
const classLanes = `
globals:
  dev: sim0
  queues: 2
lanes:
  redis:
    queues: 4
    protocol: udp
    ports: [6379]
    addrs: [10.9.0.1, "fd09::1"]
  web:
    queues: 2
    protocol: udp
    ports: [80]
    ceiling: 20mbit
    guarantee: 10mbit
`

// TestClasses checks lanes that are the card's traffic classes in both directions, with rates.
// Settings that the driver loses with the classes must be restored.
func TestClasses(t *testing.T) {
	h := plug(t, classLanes, ice...)
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 9 action 1 loc 3")
	before := bed.Dump(t)
	h.applied("hw 1 mode channel shaper bw_rlimit", "ethtool -L sim0 combined 8", "skip_sw hw_tc 2")
	arrive(t, []int{2, 3, 4, 5}, append(flowsTo(6379, 6), bed.In6(77, 6379))...)
	arrive(t, []int{6, 7}, flowsTo(80, 4)...)
	arrive(t, []int{0, 1}, append(flowsTo(7, 6), bed.In6(78, 6380))...)
	bed.Sink(t, 4000)
	leave(t, 80, []int{6, 7})
	leave(t, 6379, []int{2, 3, 4, 5})
	leave(t, 7, []int{0, 1})
	bed.Says(t, h.niclane(0, "verify", "--for", "50ms"), "0 drift")
	h.restored(before)
}

// leave sends from a port of the card to a sink. All packets must leave on the same queue, one of
// queues.
func leave(t *testing.T, port uint16, queues []int) {
	t.Helper()
	c := dialFrom(t, port)
	defer c.Close()
	leaveBy(t, c, queues)
}

// leaveBy sends on an existing connection and checks the queue like leave.
func leaveBy(t *testing.T, c *net.UDPConn, queues []int) {
	t.Helper()
	before := bed.Stats(t)
	const n = 5
	for range n {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	count := func() []uint64 { return bed.PerQueue(t, before, "tx_queue_%d_packets", bed.QueueCount(t)) }
	bed.Until(t, "the packets to leave", func() bool { return bed.Sum(count()) >= n })
	ours := uint64(0)
	for _, q := range queues {
		ours += count()[q]
	}
	if ours < n {
		t.Errorf("from %v: packets by queue %v, want them on %v", c.LocalAddr(), count(), queues)
	}
}

// dialFrom connects from a port of the card to the sink of leave.
func dialFrom(t *testing.T, port uint16) *net.UDPConn {
	t.Helper()
	return bed.In(4000, port).Back().Dial(t)
}

// TestDCB checks a driver that, like bnxt and ixgbe, takes mode channel for DCB. niclane must
// notice this when it reads the qdisc back, and leave no change.
func TestDCB(t *testing.T) {
	h := plug(t, classLanes, ice...)
	bed.Param(t, "channel_is_dcb", "1")
	before := bed.Dump(t)
	bed.Says(t, h.niclane(1, "apply", h.lanes), "takes mode channel for DCB")
	same(t, "after the refusal", before)
}

// TestSingleQueues checks a card without contexts. Its traffic classes cannot express these lanes,
// so each rule must lead to a single queue.
func TestSingleQueues(t *testing.T) {
	h := plug(t, strings.Replace(twoLanes, "queues: 2\n    protocol", "queues: 2\n    rxusecs: 10\n    protocol", 1),
		"queues=8", "channels=8", "contexts=1")
	before := bed.Dump(t)
	h.applied("ethtool -N sim0 flow-type udp4 dst-port 6379 action 2", "ethtool -Q sim0 queue_mask 0x8")
	arrive(t, []int{2}, flowsTo(6379, 3)...)
	arrive(t, []int{4}, flowsTo(443, 3)...)
	arrive(t, []int{0, 1}, flowsTo(7, 8)...)
	h.restored(before)
}

// TestSymmetric checks lanes that are traffic classes. Each connection must send on the transmit
// queue that belongs to its receive queue.
func TestSymmetric(t *testing.T) {
	h := plug(t, "globals: {dev: sim0, queues: 2}\nlanes: {web: {queues: 4, ports: [80]}}\n", ice...)
	before := bed.Dump(t)
	h.applied("echo 10 > /sys/class/net/sim0/queues/tx-4/xps_rxqs")
	listener, err := net.Listen("tcp4", net.JoinHostPort(bed.CardAddr.String(), "80"))
	must.Do(t, err)
	defer listener.Close()
	seen := map[int]bool{}
	for i := range 12 {
		port := 2000 + 997*i // neighbours differ in few bits: with some keys, the hash sends all to one queue
		var client net.Conn
		bed.Behind(t, func() {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: bed.WireAddr.AsSlice(), Port: port}}
			if client, err = dialer.Dial("tcp4", listener.Addr().String()); err != nil {
				t.Fatal(err)
			}
		})
		server, err := listener.Accept()
		must.Do(t, err)
		// A connection follows its receive queue only after it has received a packet.
		exchange(t, client, server, 1)
		stats := bed.Stats(t)
		// n is larger than the number of late acknowledgements of the connection before.
		const n = 5
		exchange(t, client, server, n)
		sentBy := func() []uint64 { return bed.PerQueue(t, stats, "tx_queue_%d_packets", 6) }
		// The card counts a packet later, when its sending completes.
		bed.Until(t, "the answers to be counted", func() bool { return slices.Max(sentBy()) >= n })
		received, sent := bed.PerQueue(t, stats, "rx_queue_%d_packets", 6), sentBy()
		for q := range received {
			if (received[q] >= n) != (sent[q] >= n) {
				t.Errorf("port %d: received by queue %v, sent %v", port, received, sent)
			}
			if received[q] >= n {
				seen[q] = true
			}
		}
		client.Close()
		server.Close()
	}
	if len(seen) < 2 {
		t.Errorf("connections were on queues %v alone: nothing is shown", seen)
	}
	h.restored(before)
}

// exchange sends a byte in each direction, n times.
func exchange(t *testing.T, client, server net.Conn, n int) {
	t.Helper()
	b := make([]byte, 1)
	for range n {
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			if _, err := way[0].Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := way[1].Read(b); err != nil {
				t.Fatal(err)
			}
		}
	}
}

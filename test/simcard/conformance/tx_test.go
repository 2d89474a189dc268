// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"math"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// toQueues sends what goes to port 5000+n by transmit queue n.
func toQueues(t *testing.T, n int) (ports []uint16) {
	t.Helper()
	sh(t, "tc qdisc add dev sim0 clsact")
	for q := range n {
		sh(t, fmt.Sprintf("tc filter add dev sim0 egress protocol ip prio 1 flower ip_proto udp dst_port %d action skbedit queue_mapping %d", 5000+q, q))
		ports = append(ports, uint16(5000+q))
	}
	sink(t, ports...)
	return ports
}

// share floods the ports until the queues have sent so many bytes in all, and
// returns what each has sent. The first part, which bursts fill, is left out.
func share(t *testing.T, ports []uint16, queues int, total uint64, setup func(*net.UDPConn)) []uint64 {
	t.Helper()
	start := stats(t)
	var before map[string]uint64
	flood(t, ports, setup, func() bool {
		if before == nil {
			if sum(perQueue(t, start, "tx_queue_%d_bytes", queues)) > total/4 {
				before = stats(t)
			}
			return false
		}
		return sum(perQueue(t, before, "tx_queue_%d_bytes", queues)) > total
	})
	return perQueue(t, before, "tx_queue_%d_bytes", queues)
}

// ratios fails unless each queue's part of what all have sent is as its rate is.
func ratios(t *testing.T, what string, got []uint64, want ...float64) {
	t.Helper()
	all, rates := float64(sum(got[:len(want)])), 0.0
	for _, w := range want {
		rates += w
	}
	for i, w := range want {
		if part := float64(got[i]) / all; math.Abs(part-w/rates) > 0.06 {
			t.Errorf("%s: queue %d sent %.2f of %v, want %.2f", what, i, part, got, w/rates)
		}
	}
}

// The rates of these tests are low, as the guest is slow: what is compared are
// ratios, and senders must be able to send more than they may. Pauses of the
// guest are made up for.
const (
	enough   = 300_000
	patience = "burst_us=100000"
)

// TestMaxRate: queues under tx_maxrate send as their rates are.
func TestMaxRate(t *testing.T) {
	plug(t, "queues=3", "channels=3", patience)
	ports := toQueues(t, 3)
	for q, rate := range []string{"1", "1", "2"} {
		write(t, fmt.Sprintf("/sys/class/net/sim0/queues/tx-%d/tx_maxrate", q), rate)
	}
	ratios(t, "1:1:2 Mbit/s", share(t, ports, 3, 2*enough, nil), 1, 1, 2)
	write(t, "/sys/class/net/sim0/queues/tx-0/tx_maxrate", "2")
	write(t, "/sys/class/net/sim0/queues/tx-2/tx_maxrate", "1")
	ratios(t, "2:1:1 Mbit/s", share(t, ports, 3, 2*enough, nil), 2, 1, 1)
}

// TestLink: without rates, queues share the link evenly.
func TestLink(t *testing.T) {
	plug(t, "queues=3", "channels=3", "speed=3", patience)
	ratios(t, "a link of 3 Mbit/s", share(t, toQueues(t, 3), 3, 2*enough, nil), 1, 1, 1)
}

// priority sets each flow's priority to the last digit of its port.
func priority(t *testing.T) func(*net.UDPConn) {
	return func(c *net.UDPConn) {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		prio := c.RemoteAddr().(*net.UDPAddr).Port % 10
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, prio) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestMqprioRates: bw_rlimit's limits and guarantees.
func TestMqprioRates(t *testing.T) {
	plug(t, "queues=4", "channels=4", "speed=3", patience)
	ports := []uint16{5000, 5001, 5002}
	sink(t, ports...)
	mqprio := "tc qdisc add dev sim0 root mqprio num_tc 3 map 0 1 2 queues 1@0 1@1 1@2 hw 1 mode channel shaper bw_rlimit "
	sh(t, mqprio+"max_rate 300kbit 600kbit 1200kbit")
	ratios(t, "max 1:2:4", share(t, ports, 3, enough, priority(t)), 1, 2, 4)
	sh(t, "tc qdisc del dev sim0 root")
	// 6 tenths of the link are guaranteed to one, what is left is shared by all.
	sh(t, mqprio+"min_rate 0 1800kbit 0")
	ratios(t, "min 0:6:0 of 10 tenths", share(t, ports, 3, 2*enough, priority(t)), 1.33, 7.33, 1.33)
	sh(t, "tc qdisc del dev sim0 root")
	if got := share(t, ports[:1], 4, enough, nil); sum(got) == 0 {
		t.Error("nothing is sent without mqprio")
	}
}

// TestHTB: offloaded classes, with a guarantee, a limit, and a parent's limit.
func TestHTB(t *testing.T) {
	plug(t, "queues=8", "channels=2", "speed=3", patience)
	sh(t, "ethtool -K sim0 hw-tc-offload on")
	ports := []uint16{5001, 5002, 5003}
	sink(t, ports...)
	sh(t, "tc qdisc add dev sim0 root handle 1: htb offload default 3")
	sh(t, "tc class add dev sim0 parent 1: classid 1:1 htb rate 1800kbit ceil 1800kbit")
	sh(t, "tc class add dev sim0 parent 1:1 classid 1:2 htb rate 1200kbit ceil 1800kbit")
	sh(t, "tc class add dev sim0 parent 1:1 classid 1:4 htb rate 300kbit ceil 1800kbit")
	sh(t, "tc class add dev sim0 parent 1: classid 1:3 htb rate 300kbit ceil 600kbit")
	sh(t, "tc qdisc add dev sim0 clsact")
	for port, class := range map[int]string{5001: "1:2", 5002: "1:4", 5003: "1:3"} {
		sh(t, fmt.Sprintf("tc filter add dev sim0 egress protocol ip flower ip_proto udp dst_port %d action skbedit priority %s", port, class))
	}
	// In tenths of the link: of 6 together, 4 and 1 are guaranteed and one is
	// shared; 2 is a limit.
	got := share(t, ports, 8, 2*enough, nil)
	ratios(t, "4.5:1.5:2", got[2:5], 4.5, 1.5, 2)
	sh(t, "tc class change dev sim0 parent 1: classid 1:3 htb rate 300kbit ceil 300kbit")
	got = share(t, ports, 8, 2*enough, nil)
	ratios(t, "4.5:1.5:1", got[2:5], 4.5, 1.5, 1)
	refused(t, "ethtool -L sim0 combined 1")
	sh(t, "tc class del dev sim0 classid 1:4")
	// The last queue has moved to the gap.
	got = share(t, ports, 8, enough, nil)
	if got[2] == 0 || got[3] == 0 || got[4] != 0 {
		t.Errorf("after a class went: %v", got)
	}
	sh(t, "tc qdisc del dev sim0 root")
	if n := strings.Count(sh(t, "ls /sys/class/net/sim0/queues"), "tx-"); n != 2 {
		t.Errorf("%d transmit queues at the end, want 2", n)
	}
	if got := share(t, ports[:1], 8, enough, nil); got[0]+got[1] == 0 {
		t.Error("nothing is sent without HTB")
	}
}

// TestByteQueueLimits: a slow link leaves frames in the qdisc, not in the ring.
func TestByteQueueLimits(t *testing.T) {
	plug(t, "queues=1", "channels=1", "speed=2")
	sink(t, 5000)
	write(t, "/sys/class/net/sim0/queues/tx-0/byte_queue_limits/limit_max", "20000")
	var inflight string
	flood(t, []uint16{5000}, nil, func() bool {
		inflight = read(t, "/sys/class/net/sim0/queues/tx-0/byte_queue_limits/inflight")
		return perQueue(t, map[string]uint64{}, "tx_queue_%d_bytes", 1)[0] > enough
	})
	var n int
	fmt.Sscan(inflight, &n)
	if n == 0 || n > 25000 {
		t.Errorf("%d bytes in the ring, want some and at most about 20000", n)
	}
}

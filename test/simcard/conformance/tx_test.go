// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// toQueues makes the card send packets to port 5000+q on transmit queue q, for n queues. It returns
// these ports.
func toQueues(t *testing.T, n int) (ports []uint16) {
	t.Helper()
	bed.Sh(t, "tc qdisc add dev sim0 clsact")
	for q := range n {
		bed.Sh(t, fmt.Sprintf("tc filter add dev sim0 egress protocol ip prio 1 flower ip_proto udp dst_port %d "+
			"action skbedit queue_mapping %d", 5000+q, q))
		ports = append(ports, uint16(5000+q))
	}
	bed.Sink(t, ports...)
	return ports
}

// The rates in these tests are low, because senders must be faster than the rates, and the guest is
// slow. The tests compare ratios of rates. The card allows large bursts, so that queues catch up
// after a pause of the guest.
const (
	enough   = 300_000
	patience = "burst_us=100000"
)

// TestMaxRate checks that queues send in the ratio of their tx_maxrate.
func TestMaxRate(t *testing.T) {
	bed.Plug(t, "queues=3", "channels=3", patience)
	ports := toQueues(t, 3)
	for q, rate := range []string{"1", "1", "2"} {
		bed.Write(t, fmt.Sprintf("/sys/class/net/sim0/queues/tx-%d/tx_maxrate", q), rate)
	}
	bed.Ratios(t, "1:1:2 Mbit/s", bed.Share(t, ports, 3, 2*enough, nil), 1, 1, 2)
	bed.Write(t, "/sys/class/net/sim0/queues/tx-0/tx_maxrate", "2")
	bed.Write(t, "/sys/class/net/sim0/queues/tx-2/tx_maxrate", "1")
	bed.Ratios(t, "2:1:1 Mbit/s", bed.Share(t, ports, 3, 2*enough, nil), 2, 1, 1)
}

// TestLink checks that queues without rates get equal shares of the link.
func TestLink(t *testing.T) {
	bed.Plug(t, "queues=3", "channels=3", "speed=3", patience)
	bed.Ratios(t, "a link of 3 Mbit/s", bed.Share(t, toQueues(t, 3), 3, 2*enough, nil), 1, 1, 1)
}

// priority sets the priority of each flow's socket to the last digit of the flow's port.
func priority(t *testing.T) func(*net.UDPConn) {
	return func(c *net.UDPConn) {
		raw, err := c.SyscallConn()
		must.Do(t, err)
		prio := c.RemoteAddr().(*net.UDPAddr).Port % 10
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, prio) })
		must.Do(t, err)
	}
}

// TestMqprioRates tests limits and guarantees of mqprio's shaper bw_rlimit.
func TestMqprioRates(t *testing.T) {
	bed.Plug(t, "queues=4", "channels=4", "speed=3", patience)
	ports := []uint16{5000, 5001, 5002}
	bed.Sink(t, ports...)
	mqprio := "tc qdisc add dev sim0 root mqprio num_tc 3 map 0 1 2 queues 1@0 1@1 1@2 hw 1 mode channel shaper " +
		"bw_rlimit "
	bed.Sh(t, mqprio+"max_rate 300kbit 600kbit 1200kbit")
	bed.Ratios(t, "max 1:2:4", bed.Share(t, ports, 3, enough, priority(t)), 1, 2, 4)
	bed.Sh(t, "tc qdisc del dev sim0 root")
	// One class has a guarantee of 6 tenths of the link. All three share the other 4 tenths equally.
	bed.Sh(t, mqprio+"min_rate 0 1800kbit 0")
	bed.Ratios(t, "min 0:6:0 of 10 tenths", bed.Share(t, ports, 3, 2*enough, priority(t)), 1.33, 7.33, 1.33)
	bed.Sh(t, "tc qdisc del dev sim0 root")
	if got := bed.Share(t, ports[:1], 4, enough, nil); bed.Sum(got) == 0 {
		t.Error("nothing is sent without mqprio")
	}
}

// TestHTB tests offloaded HTB classes: one with a guarantee, one with a limit, and a parent with a
// limit.
func TestHTB(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=2", "speed=3", patience)
	bed.Sh(t, "ethtool -K sim0 hw-tc-offload on")
	ports := []uint16{5001, 5002, 5003}
	bed.Sink(t, ports...)
	bed.Sh(t, "tc qdisc add dev sim0 root handle 1: htb offload default 3")
	bed.Sh(t, "tc class add dev sim0 parent 1: classid 1:1 htb rate 1800kbit ceil 1800kbit")
	bed.Sh(t, "tc class add dev sim0 parent 1:1 classid 1:2 htb rate 1200kbit ceil 1800kbit")
	bed.Sh(t, "tc class add dev sim0 parent 1:1 classid 1:4 htb rate 300kbit ceil 1800kbit")
	bed.Sh(t, "tc class add dev sim0 parent 1: classid 1:3 htb rate 300kbit ceil 600kbit")
	bed.Sh(t, "tc qdisc add dev sim0 clsact")
	for port, class := range map[int]string{5001: "1:2", 5002: "1:4", 5003: "1:3"} {
		bed.Sh(t, fmt.Sprintf("tc filter add dev sim0 egress protocol ip flower ip_proto udp dst_port %d action "+
			"skbedit priority %s", port, class))
	}
	// In tenths of the link: a parent class has a limit of 6. Its two classes have guarantees of 4 and
	// 1, and share the 1 that is left. A third class has a limit of 2.
	got := bed.Share(t, ports, 8, 2*enough, nil)
	bed.Ratios(t, "4.5:1.5:2", got[2:5], 4.5, 1.5, 2)
	bed.Sh(t, "tc class change dev sim0 parent 1: classid 1:3 htb rate 300kbit ceil 300kbit")
	got = bed.Share(t, ports, 8, 2*enough, nil)
	bed.Ratios(t, "4.5:1.5:1", got[2:5], 4.5, 1.5, 1)
	bed.Refused(t, "ethtool -L sim0 combined 1")
	bed.Sh(t, "tc class del dev sim0 classid 1:4")
	// The queue of the last class has moved to the place of the removed one.
	got = bed.Share(t, ports, 8, enough, nil)
	if got[2] == 0 || got[3] == 0 || got[4] != 0 {
		t.Errorf("after a class went: %v", got)
	}
	bed.Sh(t, "tc qdisc del dev sim0 root")
	if n := strings.Count(bed.Sh(t, "ls /sys/class/net/sim0/queues"), "tx-"); n != 2 {
		t.Errorf("%d transmit queues at the end, want 2", n)
	}
	if got := bed.Share(t, ports[:1], 8, enough, nil); got[0]+got[1] == 0 {
		t.Error("nothing is sent without HTB")
	}
}

// TestByteQueueLimits checks that, on a slow link, frames wait in the qdisc and not in the ring.
func TestByteQueueLimits(t *testing.T) {
	bed.Plug(t, "queues=1", "channels=1", "speed=2")
	bed.Sink(t, 5000)
	bed.Write(t, "/sys/class/net/sim0/queues/tx-0/byte_queue_limits/limit_max", "20000")
	var inflight string
	bed.Flood(t, []uint16{5000}, nil, func() bool {
		inflight = bed.Read(t, "/sys/class/net/sim0/queues/tx-0/byte_queue_limits/inflight")
		return bed.PerQueue(t, map[string]uint64{}, "tx_queue_%d_bytes", 1)[0] > enough
	})
	var n int
	fmt.Sscan(inflight, &n)
	if n == 0 || n > 25000 {
		t.Errorf("%d bytes in the ring, want some and at most about 20000", n)
	}
}

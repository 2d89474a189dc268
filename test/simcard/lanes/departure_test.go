// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// edtLanes are lanes that share the link by departure times. They are matched by remote port, so that the
// senders need no fixed ports of their own. The link is slow, because the guest is slow: b sends no more than
// its ceiling only if the guest could send more.
const edtLanes = `
globals:
  dev: sim0
  link-rate: 1mbit
  guarantee: 100kbit
  queues: 1
  force: {mapper: queue-mapping}
lanes:
  a: {queues: 1, protocol: udp, remote-ports: [5001], guarantee: 500kbit, rank: 2}
  b: {queues: 1, protocol: udp, remote-ports: [5002], ceiling: 200kbit, rank: 1}
`

var edtCard = []string{"queues=4", "channels=4", "speed=100"}

// TestDepartures breaks each part of lanes that share the link by departure times. verify must say what no
// longer holds, and watch must repair it.
func TestDepartures(t *testing.T) {
	h := plug(t, edtLanes, edtCard...)
	before := bed.Dump(t)
	h.applied("qdisc add dev sim0 parent 1:1 handle 3100: fq", "gso_max_size", "lane a: rank 2, at least 500kbit",
		"lane b: rank 1, at most 200kbit")
	for _, c := range []struct {
		name, key, means string
		damage           func()
	}{
		{"the qdiscs", "qdisc/sim0/root", "no guarantee, ceiling or rank holds", func() {
			bed.Sh(t, "tc qdisc del dev sim0 root")
		}},
		{"the qdisc of a queue", "qdisc/sim0/1:2", "its packets do not wait for their departure times", func() {
			bed.Sh(t, "tc qdisc replace dev sim0 parent 1:2 handle 7: pfifo")
		}},
		{"a setting of a queue's qdisc", "qdisc/sim0/1:2", "maxrate 1000000bit", func() {
			bed.Sh(t, "tc qdisc change dev sim0 parent 1:2 handle 3101: fq maxrate 1mbit")
		}},
		{"the classifier", "filter/sim0/egress", "", func() { bed.Sh(t, "tc filter del dev sim0 egress") }},
		{"the bound of large packets", "gso/sim0", "takes the link for longer", func() {
			bed.Sh(t, "ip link set dev sim0 gso_max_size 65536")
		}},
		{"the link's rate", "link/", "packets leave at once", func() { clearMap(t, "nl_link", 0) }},
		{"a lane's share", "share/", "neither its guarantee, ceiling nor rank holds", func() {
			clearMap(t, "nl_shares", 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			c.damage()
			bed.Says(t, h.niclane(3, "verify", "--for", "0"), c.key, c.means)
			said, end := h.watch()
			bed.Until(t, "watch repairs "+c.name, func() bool { return strings.Contains(said(), "made again") })
			end()
			h.niclane(0, "verify", "--for", "0")
		})
	}
	h.t = t
	h.restored(before)
}

// clearMap writes zeros to a key of a map of the classifier.
func clearMap(t *testing.T, name string, key uint32) {
	t.Helper()
	for id := ebpf.MapID(0); ; {
		next, err := ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			t.Fatalf("no map %s", name)
		}
		must.Do(t, err)
		m, err := ebpf.NewMapFromID(next)
		must.Do(t, err)
		if info, err := m.Info(); err == nil && info.Name == name {
			must.Do(t, m.Put(key, make([]byte, m.ValueSize())))
			return
		}
		m.Close()
		id = next
	}
}

// TestDepartureRates checks the shares and the ceiling on the wire.
func TestDepartureRates(t *testing.T) {
	h := plug(t, edtLanes, edtCard...)
	before := bed.Dump(t)
	h.applied("fq")
	ports := []uint16{5000, 5001, 5002}
	bed.Sink(t, ports...)
	got := bed.Share(t, ports[1:], 4, enough, nil)
	bed.Ratios(t, "a ceiling of 200 beside the rest of 980 kbit/s", got[1:], 780, 200)
	if got[0] > enough/20 {
		t.Errorf("the default lane's queue sent %d bytes", got[0])
	}
	got = bed.ShareOn(t, fromPod(t, ports[1:]), 4, enough)
	bed.Ratios(t, "the same, forwarded from a pod", got[1:], 780, 200)
	if said := bed.Sh(t, "dmesg"); strings.Contains(said, "tstamp_type") {
		t.Errorf("fq does not know the clock of departure times:\n%s", said)
	}
	h.restored(before)
}

// fromPod makes a network namespace behind the card's host, which forwards its packets, and returns sockets
// in it.
func fromPod(t *testing.T, ports []uint16) (conns []*net.UDPConn) {
	t.Helper()
	bed.Sh(t, "ip netns add pod")
	t.Cleanup(func() { bed.Sh(t, "ip netns del pod") })
	for _, line := range []string{
		"ip link add pod0 type veth peer name eth0 netns pod",
		"ip addr add 10.99.0.1/24 dev pod0",
		"ip link set pod0 up",
		"ip -n pod addr add 10.99.0.2/24 dev eth0",
		"ip -n pod link set eth0 up",
		"ip -n pod route add default via 10.99.0.1",
	} {
		bed.Sh(t, line)
	}
	const forward = "/proc/sys/net/ipv4/ip_forward"
	bed.Write(t, forward, "1")
	t.Cleanup(func() { bed.Write(t, forward, "0") })
	bed.Within(t, "pod", func() { conns = bed.Dial(t, ports, nil) })
	return conns
}

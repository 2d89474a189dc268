// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/vethtest"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// node has the address of the tests' node.
var node = []netip.Addr{netip.MustParseAddr("192.0.2.1")}

// both calls the function OnDevice and the method l.OnDevice, and checks that their results are
// equal.
func both(t *testing.T, l *Links, addrs []netip.Addr) ([]string, error) {
	t.Helper()
	found, err := OnDevice("up0", node, addrs)
	same, known := l.OnDevice("up0", node, addrs)
	if (err == nil) != (known == nil) || err != nil && err.Error() != known.Error() || !slices.Equal(found, same) {
		t.Errorf("who lists all links: %v, %v; who knows them: %v, %v", found, err, same, known)
	}
	return found, err
}

// TestOverlay checks that OnDevice returns a VXLAN tunnel once it carries pods' packets to other nodes.
func TestOverlay(t *testing.T) {
	vethtest.NeedRoot(t)
	pod := []netip.Addr{netip.MustParseAddr("10.244.1.5")}
	l := new(Links)
	t.Cleanup(l.forget)
	expect := func(when string, pod []netip.Addr, want ...string) {
		t.Helper()
		if got, err := both(t, l, pod); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", when, got, err, want)
		}
	}
	expect("nothing there", pod)
	vethtest.IP(t, `link add up0 type veth peer name up1
		link set up0 up
		link set up1 up
		addr add 192.0.2.1/24 dev up0
		link add flannel.1 type vxlan id 1 dev up0 dstport 8472 nolearning`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0") })
	expect("down", pod)
	vethtest.IP(t, "link set flannel.1 up")
	expect("without a route", pod)
	vethtest.IP(t, `addr add 10.244.1.0/32 dev flannel.1
		route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink`)
	expect("with a route", pod, "vxlan:8472")
	expect("of the other family", []netip.Addr{netip.MustParseAddr("fd00::5")})
	vethtest.IP(t, `link del flannel.1
		link add cilium_vxlan type vxlan external dstport 8472
		link set cilium_vxlan up`)
	t.Cleanup(func() { vethtest.IP(t, "link del cilium_vxlan") })
	expect("up", pod, "vxlan:8472")
	// For a link that leaves a bridge, the kernel sends RTM_DELLINK, but the link still exists.
	vethtest.IP(t, `link add br7 type bridge
		link set cilium_vxlan master br7`)
	expect("in a bridge", pod, "vxlan:8472")
	vethtest.IP(t, "link del br7")
	expect("in no bridge", pod, "vxlan:8472")
	// If messages are lost because the socket's buffer is full, the links are listed again.
	vethtest.IP(t, "link del cilium_vxlan")
	expect("gone", pod)
	if err := unix.SetsockoptInt(l.told, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	vethtest.IP(t, `link add dummy7 type veth peer name dummy8
		link set dummy7 up
		link set dummy7 down
		link set dummy7 up
		link del dummy7
		link add cilium_vxlan type vxlan external dstport 8472
		link set cilium_vxlan up`)
	expect("after a loss", pod, "vxlan:8472")
	vethtest.IP(t, `link add other_vxlan type vxlan external dstport 4789
		link set other_vxlan up`)
	t.Cleanup(func() { vethtest.IP(t, "link del other_vxlan") })
	expect("two tunnels", pod, "vxlan:4789", "vxlan:8472")
}

// TestTunnelOfOtherDevice tests VXLAN links whose packets leave by another device than the lanes', and
// links on top of the lanes' device.
func TestTunnelOfOtherDevice(t *testing.T) {
	vethtest.NeedRoot(t)
	pod := []netip.Addr{netip.MustParseAddr("10.244.1.5")}
	vethtest.IP(t, `link add up0 type veth peer name up1
		link set up0 up
		link set up1 up
		addr add 192.0.2.1/24 dev up0
		link add br0 type bridge
		link set up0 master br0
		link add other0 type veth peer name other1
		link set other0 up
		link set other1 up
		addr add 198.51.100.1/24 dev other0`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0\nlink del other0\nlink del br0") })
	const route = "route add 10.244.2.0/24 dev vx0"
	for name, c := range map[string]struct {
		link, route string
		node        []netip.Addr
		want        string // part of the error
	}{
		"on the device":                  {"id 1 dev up0", route, node, ""},
		"on its bridge":                  {"id 1 dev br0", route, node, ""},
		"on another device":              {"id 1 dev other0", route, node, "leaves by other0, and the lanes are on up0"},
		"from its address":               {"id 1 local 192.0.2.1", route, nil, ""},
		"from another device's address":  {"id 1 local 198.51.100.1", route, node, "leaves by other0"},
		"to a host behind it":            {"id 1 remote 192.0.2.9", route, nil, ""},
		"to a host behind another":       {"id 1 remote 198.51.100.9", route, node, "leaves by other0"},
		"of programs":                    {"external", "", node, ""},
		"of programs, the node is other": {"external", "", []netip.Addr{netip.MustParseAddr("198.51.100.1")}, "leaves by other0"},
		"of programs, the node unknown":  {"external", "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			vethtest.IP(t, "link add vx0 type vxlan "+c.link+" dstport 8472\nlink set vx0 up")
			t.Cleanup(func() { vethtest.IP(t, "link del vx0") })
			if c.route != "" {
				vethtest.IP(t, c.route)
			}
			got, err := OnDevice("up0", c.node, pod)
			if c.want == "" && (err != nil || !slices.Equal(got, []string{"vxlan:8472"})) ||
				c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, %v, want %q", got, err, c.want)
			}
		})
	}
}

// TestTunnelOnVLAN: a tunnel on a VLAN of the lanes' device leaves by that device.
func TestTunnelOnVLAN(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.IP(t, "link add up0 type veth peer name up1")
	t.Cleanup(func() { vethtest.IP(t, "link del up0") })
	vethtest.IP(t, `link add link up0 name up0.5 type vlan id 5
		link add vx0 type vxlan id 1 dev up0.5 dstport 8472
		link set up0 up
		link set up0.5 up
		link set vx0 up
		route add 10.244.2.0/24 dev vx0`)
	got, err := OnDevice("up0", nil, []netip.Addr{netip.MustParseAddr("10.244.1.5")})
	if err != nil || !slices.Equal(got, []string{"vxlan:8472"}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestGeneve: Antrea and OVN hand packets to a Geneve link without a device. A link of a single tunnel has a
// remote end.
func TestGeneve(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.IP(t, `link add up0 type veth peer name up1
		link set up0 up
		link set up1 up
		addr add 192.0.2.1/24 dev up0`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0") })
	for link, want := range map[string]string{
		"external dstport 6081":               "geneve:6081",
		"id 7 remote 192.0.2.2 dstport 10000": "geneve:10000",
	} {
		vethtest.IP(t, "link add gen0 type geneve "+link+"\nlink set gen0 up\nroute add 10.244.2.0/24 dev gen0")
		got, err := OnDevice("up0", node, []netip.Addr{netip.MustParseAddr("10.244.1.5")})
		if err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %v, %v, want %s", link, got, err, want)
		}
		if _, err := OnDevice("up1", node, []netip.Addr{netip.MustParseAddr("10.244.1.5")}); err == nil {
			t.Errorf("%s: not refused on the other end", link)
		}
		vethtest.IP(t, "link del gen0")
	}
}

// TestEncryptedTunnel: an IPsec policy for a tunnel's packets hides what is inside.
func TestEncryptedTunnel(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.IP(t, `link add cilium_vxlan type vxlan external dstport 8472
		link set cilium_vxlan up`)
	t.Cleanup(func() { vethtest.IP(t, "link del cilium_vxlan") })
	for policy, hides := range map[string]bool{
		"src 192.0.2.1 dst 192.0.2.2":                      true,
		"src 192.0.2.1 dst 192.0.2.2 proto udp dport 8472": true,
		"src 192.0.2.1 dst 192.0.2.2 proto udp dport 500":  false,
		"src 192.0.2.1 dst 192.0.2.2 proto tcp":            false,
		"src 198.51.100.1 dst 192.0.2.2 proto udp":         false,
	} {
		vethtest.IP(t, "xfrm policy add "+policy+" dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode transport")
		_, err := OnDevice("up0", node, []netip.Addr{netip.MustParseAddr("10.244.1.5")})
		if hides != (err != nil) || err != nil && !strings.Contains(err.Error(), "encrypts the tunnel cilium_vxlan") {
			t.Errorf("%s: got %v", policy, err)
		}
		vethtest.IP(t, "xfrm policy flush")
	}
}

// TestOverlaysOfPodNetworks tests tunnels other than VXLAN, each made as a pod network makes it. It
// also tests IPsec, and a VPN and an IPsec policy that do not concern pods.
func TestOverlaysOfPodNetworks(t *testing.T) {
	vethtest.NeedRoot(t)
	pod := []netip.Addr{netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("fd00::5")}
	l := new(Links)
	t.Cleanup(l.forget)
	for name, c := range map[string]struct{ made, end, want string }{
		"flannel's UDP": {`tuntap add mode tun name flannel0
			link set flannel0 up
			route add 10.244.0.0/16 dev flannel0`, "link del flannel0", "flannel0 (tuntap) carries 10.244.0.0/16"},
		"Calico's IP in IP": {`link add tunl7 type ipip local 192.0.2.1
			link set tunl7 up
			route add 10.244.2.0/24 via 192.0.2.2 dev tunl7 onlink`, "link del tunl7", "tunl7 (ipip) carries 10.244.2.0/24"},
		"Cilium's WireGuard": {`link add cilium_wg0 type wireguard
			link set cilium_wg0 up`, "link del cilium_wg0", "cilium_wg0 (wireguard) carries packets that programs hand to it"},
		"a route in another table": {`tuntap add mode tun name wireguard.cali
			link set wireguard.cali up
			-6 route add fd00:2::/64 dev wireguard.cali table 1`, "link del wireguard.cali", "wireguard.cali (tuntap) carries fd00:2::/64"},
		"IPsec": {`xfrm policy add src 10.244.1.0/24 dst 10.244.2.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel`,
			"xfrm policy flush", "encrypts packets from 10.244.1.5 to 10.244.2.0/24"},
		"IPsec of others": {`xfrm policy add src 192.0.2.0/24 dst 198.51.100.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel`,
			"xfrm policy flush", ""},
		"a VPN of the node's": {`tuntap add mode tun name tun0
			link set tun0 up
			route add 10.8.0.0/24 dev tun0`, "link del tun0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			first, rest, _ := strings.Cut(c.made, "\n")
			vethtest.IP(t, first)
			t.Cleanup(func() { vethtest.IP(t, c.end) })
			vethtest.IP(t, rest)
			_, err := both(t, l, pod)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestBucket checks the sizes of bucket and queue: about 20 and 25 ms at the rate, at least 3
// frames each, and never more than the kernel's 32-bit numbers hold.
func TestBucket(t *testing.T) {
	const frame = 1518
	for _, tt := range []struct {
		bits         uint64
		burst, queue uint64
	}{
		{1e5, 3 * frame, 3 * frame}, {1e6, 3 * frame, 3 * frame}, {1e7, 25000, 31250}, {15e6, 37500, 46875},
		{1e9, 25e5, 3125e3},
		{1718e9, 256 << 20, 1<<32 - 1 - 256<<20}, {1 << 62, 256 << 20, 1<<32 - 1 - 256<<20},
	} {
		if burst, limit := bucket(tt.bits, frame); uint64(burst) != tt.burst || uint64(limit) != tt.burst+tt.queue {
			t.Errorf("%d bit/s: burst %d, limit %d, want %d, %d", tt.bits, burst, limit, tt.burst, tt.burst+tt.queue)
		}
	}
}

func TestLimit(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.IP(t, `link add pod0 type veth peer name pod1
		link set pod0 up
		link set pod1 up`)
	t.Cleanup(func() { vethtest.IP(t, "link del pod0") })
	before := vethtest.Qdiscs(t, "pod0")
	for _, bits := range []uint64{20_000_000, 30_000_000} {
		if err := Limit("pod0", bits); err != nil {
			t.Fatal(err)
		}
	}
	if got := vethtest.Qdiscs(t, "pod0"); !strings.Contains(got, "tbf") ||
		!strings.Contains(got, "rate 30Mbit burst 75000b") && !strings.Contains(got, "rate 30Mbit burst 73") {
		t.Errorf("got %s", got)
	}
	for range 2 {
		if err := Limit("pod0", 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := vethtest.Qdiscs(t, "pod0"); got != before {
		t.Errorf("before %s, after %s", before, got)
	}
	if err := Limit("pod0", 10_000_000); err != nil {
		t.Fatal(err)
	}
	vethtest.TC(t, "qdisc add dev pod1 root handle 7: tbf rate 1mbit burst 10k limit 10k")
	foreign := vethtest.Qdiscs(t, "pod1")
	if err := Unlimit(); err != nil {
		t.Error(err)
	}
	if got, other := vethtest.Qdiscs(t, "pod0"), vethtest.Qdiscs(t, "pod1"); got != before || other != foreign {
		t.Errorf("after Unlimit: %s and %s, want %s and %s", got, other, before, foreign)
	}
	vethtest.TC(t, "qdisc add dev pod0 root handle 7: pfifo")
	if err := Limit("pod0", 1_000_000); err == nil || !strings.Contains(err.Error(), "of another program") {
		t.Errorf("got %v", err)
	}
}

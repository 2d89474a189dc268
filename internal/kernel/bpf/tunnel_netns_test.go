// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

var (
	vxlan8472 = device.Tunnels{Filter: filter.Key(), Tunnels: []device.Tunnel{{Protocol: "vxlan", Port: 8472}}}
	both      = device.Tunnels{Filter: filter.Key(), Tunnels: []device.Tunnel{{Protocol: "vxlan", Port: 8472},
		{Protocol: "geneve", Port: 6081}}}
)

func TestTunnelsReadBack(t *testing.T) {
	withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
		for _, p := range []device.Object{filter, generic} {
			one, two := vxlan8472, both
			one.Filter, two.Filter = p.Key(), p.Key()
			vethtest.Absent(t, "without a program", c, one)
			must.Refuse(t, "without a program", c.Write(nil, one), unix.ENOENT)
			vethtest.Write(t, c, nil, p)
			vethtest.Absent(t, "at first", c, one)
			vethtest.Write(t, c, nil, one)
			vethtest.Write(t, c, one, two)
			all, err := c.Look("v0").Contents()
			must.Do(t, err)
			same(t, nil, []device.Tunnels{two}, all.Tunnels)
			for name, wrong := range map[string][]device.Tunnel{
				"none":          nil,
				"five":          {{Protocol: "vxlan", Port: 1}, {Protocol: "vxlan", Port: 2}, {Protocol: "vxlan", Port: 3}, {Protocol: "vxlan", Port: 4}, {Protocol: "vxlan", Port: 5}},
				"no port":       {{Protocol: "vxlan", Port: 0}},
				"not over UDP":  {{Protocol: "gre", Port: 47}},
				"without names": {{Protocol: "", Port: 47}},
			} {
				must.Refuse(t, name, c.Write(two, device.Tunnels{Filter: p.Key(), Tunnels: wrong}), unix.EINVAL)
			}
			vethtest.Write(t, c, two, two) // a refused write has changed nothing
			vethtest.Write(t, c, two, nil)
			vethtest.Write(t, c, nil, two)
			vethtest.Write(t, c, p, nil)
			vethtest.Absent(t, "of a removed program", c, two)
		}
	})
}

// tunnels are real tunnels between v0 and v1. ends are the underlay's addresses.
var tunnels = map[string]struct{ link, ends string }{
	"VXLAN":            {"type vxlan id 7 dstport 8472", "10.9.0.1 10.9.0.2"},
	"VXLAN over IPv6":  {"type vxlan id 7 dstport 8472", "fd00:9::1 fd00:9::2"},
	"Geneve":           {"type geneve id 7 dstport 6081", "10.9.0.1 10.9.0.2"},
	"Geneve over IPv6": {"type geneve id 7 dstport 6081 udp6zerocsumrx", "fd00:9::1 fd00:9::2"},
}

// connectTunnel makes the tunnel's two ends, with the addresses 10.8.0.1 and 10.8.0.2 inside, and their
// IPv6 counterparts.
func connectTunnel(t *testing.T, link, ends string, peer far) {
	t.Helper()
	end := strings.Fields(ends)
	add := func(i int, dev string) {
		line := fmt.Sprintf("link add tun0 %s remote %s", link, end[1-i])
		if strings.Contains(link, "vxlan") {
			line += fmt.Sprintf(" local %s dev %s", end[i], dev)
		}
		vethtest.IP(t, fmt.Sprintf(`%s
			link set tun0 up
			addr add 10.8.0.%[2]d/24 dev tun0
			addr add fd00:8::%[2]d/64 dev tun0 nodad`, line, i+1))
	}
	add(0, "v0")
	peer.do(func() { add(1, "v1") })
}

func sendTo(t *testing.T, from, to string, n int) {
	t.Helper()
	fd := bound(t, from)
	defer unix.Close(fd)
	for range n {
		must.Do(t, unix.Sendto(fd, make([]byte, 1000), 0, sockaddr(to)))
	}
}

// madeUp is the payload of a VXLAN packet: a header and a datagram from 10.8.0.1, port 5000.
var madeUp = slices.Concat([]byte{8, 0, 0, 0, 0, 0, 7, 0}, make([]byte, 12), []byte{8, 0},
	[]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 8, 0, 1, 10, 8, 0, 2}, []byte{0x13, 0x88, 0, 9, 0, 8, 0, 0})

// TestTunnelTraffic: packets inside real tunnels belong to the lane of their inner address, both those of
// this host and those of a pod behind it. A tunnel's packet that this host only forwards does not.
func TestTunnelTraffic(t *testing.T) {
	for name, tt := range tunnels {
		t.Run(name, func(t *testing.T) {
			withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
				toFar(t, func(peer far) {
					connectTunnel(t, tt.link, tt.ends, peer)
					pod, tid := newFar(t)
					defer close(pod.work)
					vethtest.IP(t, fmt.Sprintf(`link set lo up
						link add p0 type veth peer name p1
						link set p0 up
						link set p1 netns %d
						addr add 10.7.0.1/24 dev p0`, tid))
					pod.do(func() {
						vethtest.IP(t, `link set lo up
							link set p1 up
							addr add 10.7.0.2/24 dev p1
							route add default via 10.7.0.1`)
					})
					must.Do(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
					vethtest.Write(t, c, nil, filter)
					for i, local := range []string{"10.8.0.1/32", "10.7.0.2/32", "fd00:8::1/128"} {
						family := 4
						if strings.Contains(local, ":") {
							family = 6
						}
						vethtest.Write(t, c, nil, entry(device.Match{Family: family, Protocol: "udp", Local: local,
							LocalPort: 5000}, fmt.Sprintf("1:%x", 0x10+i)))
					}
					const packets = 20
					expect := func(what string, row int, send func()) {
						t.Helper()
						before := inRow(t, c, row)
						send()
						if got := inRow(t, c, row) - before; got < packets || row != 0 && got != packets {
							t.Errorf("%s: %d packets in row %#x, want %d", what, got, row, packets)
						}
					}
					own := func() { sendTo(t, "10.8.0.1:5000", "10.8.0.2:9", packets) }
					expect("before the tunnel is known", 0, own)
					vethtest.Write(t, c, nil, both)
					expect("this host's", 0x10, own)
					expect("another port", 0, func() { sendTo(t, "10.8.0.1:5001", "10.8.0.2:9", packets) })
					expect("IPv6 inside", 0x12, func() { sendTo(t, "[fd00:8::1]:5000", "[fd00:8::2]:9", packets) })
					expect("a pod's", 0x11, func() {
						pod.do(func() { sendTo(t, "10.7.0.2:5000", "10.8.0.2:9", packets) })
					})
					expect("what a pod makes up", 0, func() {
						pod.do(func() {
							fd := bound(t, "10.7.0.2:40000")
							defer unix.Close(fd)
							for range packets {
								must.Do(t, unix.Sendto(fd, madeUp, 0, sockaddr("10.9.0.2:8472")))
							}
						})
					})
					vethtest.Write(t, c, both, nil)
					expect("after the tunnel is forgotten", 0, own)
				})
			})
		})
	}
}

// TestTunnelReceived: the XDP program hands packets inside real tunnels to the processor of their inner
// address. The stack there takes them out of the tunnel.
func TestTunnelReceived(t *testing.T) {
	for name, tt := range tunnels {
		t.Run(name, func(t *testing.T) {
			withFar(t, 2, func(t *testing.T, c *bpf.Client, peer far) {
				connectTunnel(t, tt.link, tt.ends, peer)
				steer(t, c, generic, runtime.NumCPU()-1, device.Match{Family: 4, Protocol: "udp", Local: "10.8.0.1/32",
					LocalPort: 5000})
				fd := bound(t, "10.8.0.1:5000")
				defer unix.Close(fd)
				const packets = 20
				arrive := func(what string, want uint64) {
					t.Helper()
					before := counted(t, c)[1]
					peer.do(func() { sendTo(t, "10.8.0.2:9", "10.8.0.1:5000", packets) })
					for range packets {
						n, _, err := unix.Recvfrom(fd, make([]byte, 2000), 0)
						if n != 1000 || err != nil {
							t.Fatalf("%s: received %d bytes, %v", what, n, err)
						}
					}
					if got := counted(t, c)[1] - before; got != want {
						t.Errorf("%s: %d packets of the lane, want %d", what, got, want)
					}
				}
				arrive("before the tunnel is known", 0)
				of := both
				of.Filter = generic.Key()
				vethtest.Write(t, c, nil, of)
				arrive("by the tunnel", packets)
			})
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestVLANBesideTheData: if a card has removed a VLAN tag from the data, XDP does not see the
// tag. A native redirect loses the tag, so that the packet looks untagged. So a plan must turn
// rxvlan off. For a veth, the test turns the peer's txvlan off.
func TestVLANBesideTheData(t *testing.T) {
	lanes := []device.Match{
		1: {Family: 4, Protocol: "udp", LocalPort: port, VLAN: 7},
		2: {Family: 4, Protocol: "udp", LocalPort: port, VLAN: 8},
		3: {Family: 4, Protocol: "udp", LocalPort: port + 3},
		4: {Family: 4, Protocol: "udp", LocalPort: port + 4},
	}
	for _, x := range []device.XDP{generic, native} {
		t.Run(x.Mode, func(t *testing.T) {
			// One queue keeps packets in order.
			withFar(t, 1, func(t *testing.T, c *bpf.Client, peer far) {
				vethtest.Write(t, c, nil, x)
				vethtest.Write(t, c, nil, queue0)
				for n, m := range lanes[1:] {
					vethtest.Write(t, c, nil, device.CPULane{Dev: "v0", Lane: n + 1, CPUs: []int{0}})
					vethtest.Write(t, c, nil, xdpEntry(n+1, m))
				}
				v0 := vethtest.Interface(t, "v0")
				peer.do(func() { tag(t, v0.HardwareAddr) })
				beside := []uint64{0, 0, 1, 1}
				inData := []uint64{1, 0, 1, 1}
				for _, want := range [][]uint64{beside, inData} {
					before := counted(t, c)
					peer.do(func() {
						for _, p := range []int{port, port + 3, port + 4} {
							send(t, [4]byte{10, 9, 0, 1}, p)
						}
					})
					vethtest.Until(t, "the last packet is counted", func() bool { return counted(t, c)[4] > before[4] })
					var got []uint64
					for n, v := range counted(t, c) {
						if n > 0 && n < len(lanes) {
							got = append(got, v-before[n])
						}
					}
					same(t, nil, want, got)
					peer.do(func() { vethtest.Command(t, "ethtool -K v1 txvlan off") })
				}
			})
		})
	}
}

// TestLostTag: the device has no VLAN 7. Packets that the peer sends in VLAN 7 still arrive if
// native XDP redirects them, because they lose the tag.
func TestLostTag(t *testing.T) {
	for _, x := range []device.XDP{generic, native} {
		t.Run(x.Mode, func(t *testing.T) {
			withFar(t, 2, func(t *testing.T, c *bpf.Client, peer far) {
				peer.do(func() { vethtest.Command(t, "ethtool -K v1 tx off") })
				sa := &unix.SockaddrInet4{Addr: [4]byte{10, 9, 0, 1}, Port: port}
				fd := socket(t, sa, unix.SOCK_DGRAM)
				defer unix.Close(fd)
				must.Do(t, unix.Bind(fd, sa))
				steer(t, c, x, 0, device.Match{Family: 4, Protocol: "udp", LocalPort: port})
				v0 := vethtest.Interface(t, "v0")
				peer.do(func() {
					tag(t, v0.HardwareAddr)
					say(t, sa, "tagged")
					vethtest.Command(t, "tc qdisc del dev v1 clsact")
					say(t, sa, "untagged")
				})
				want := "untagged"
				if x == native {
					want = "tagged"
				}
				b := make([]byte, 100)
				n, err := unix.Read(fd, b)
				same(t, err, want, string(b[:max(n, 0)]))
			})
		})
	}
}

func say(t *testing.T, to unix.Sockaddr, what string) {
	t.Helper()
	fd := socket(t, to, unix.SOCK_DGRAM)
	defer unix.Close(fd)
	must.Do(t, unix.Sendto(fd, []byte(what), 0, to))
}

// tag makes v1 tag all packets that it sends. to is v0's hardware address, which v1 needs to
// send.
func tag(t *testing.T, to net.HardwareAddr) {
	vethtest.Command(t, fmt.Sprintf("ip neigh replace 10.9.0.1 lladdr %s dev v1", to))
	tcc, err := tc.Open()
	must.Do(t, err)
	defer tcc.Close()
	push, err := bpf.VLANProgram(7)
	must.Do(t, err)
	defer push.Close()
	must.Do(t, tcc.Write(nil, device.Qdisc{Dev: "v1", Parent: "clsact", Type: "clsact", Handle: "ffff:"}))
	if err := tcc.AddBPF(device.Filter{Dev: "v1", Parent: "egress", Pref: 5, Handle: 1, Program: "push"},
		push.FD()); err != nil {
		t.Fatal(err)
	}
}

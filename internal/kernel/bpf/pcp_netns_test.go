// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestPCPOnTheWire: the packets of a connection leave with the PCP of their lane, whether the card makes
// the tag, the kernel, or the VLAN device itself, and with two tags. Those of another port leave with the
// PCP of the VLAN device, and so do all without the entry. The data stays whole.
func TestPCPOnTheWire(t *testing.T) {
	for name, tt := range targets {
		for _, how := range []string{"card", "kernel", "device", "two"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
					toFar(t, func(peer far) { retags(t, c, peer, tt.sa, tt.match, how) })
				})
			})
		}
	}
}

func retags(t *testing.T, c *bpf.Client, peer far, sa unix.Sockaddr, match device.Match, how string) {
	// The VLAN device gives each packet the PCP 3.
	switch how {
	case "kernel": // behind the classifier: validate_xmit_vlan
		vethtest.Command(t, "ethtool -K v0 tx-vlan-hw-insert off tx-vlan-stag-hw-insert off")
	}
	tagged := func(dev string, host int) {
		top := dev + ".7"
		add := fmt.Sprintf("link add link %[1]s name %[1]s.7 type vlan id 7 egress-qos-map 0:3", dev)
		switch how {
		case "device": // in the data, before the classifier: vlan_dev_hard_header
			add += " reorder_hdr off"
		case "two": // the inner one in the data, the outer one beside it
			add = fmt.Sprintf("link add link %[1]s name %[1]s.7 type vlan proto 802.1ad id 7 egress-qos-map 0:3\n"+
				"link set %[1]s.7 up\nlink add link %[1]s.7 name %[1]s.9 type vlan id 9 egress-qos-map 0:2", dev)
			top = dev + ".9"
		}
		vethtest.IP(t, fmt.Sprintf("%s\naddr flush dev %s\nlink set %[3]s up\naddr add 10.9.0.%[4]d/24 dev %[3]s\n"+
			"addr add fd00:9::%[4]d/64 dev %[3]s nodad", add, dev, top, host))
	}
	tagged("v0", 1)
	var raw int
	peer.do(func() {
		tagged("v1", 2)
		raw = packetSocket(t, "v1")
		must.Do(t, unix.SetsockoptInt(raw, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	})
	defer unix.Close(raw)
	vethtest.Write(t, c, nil, filter)
	entry := device.FilterEntry{Filter: filter.Key(), Match: match, PCP: "5"}
	vethtest.Write(t, c, nil, entry)
	other := another(sa)
	a, b := listen(t, sa), listen(t, other)
	defer unix.Close(a)
	defer unix.Close(b)
	lane, foreign := connect(t, peer, a, sa), connect(t, peer, b, other)
	defer lane.close()
	defer foreign.close()
	check := func(when string, parts int, want map[string]bool) {
		t.Helper()
		lane.exchange(t, parts)
		foreign.exchange(t, parts)
		if got := tags(t, raw); !maps.Equal(got, want) {
			t.Errorf("%s: port, VLAN ID and PCP are %v, want %v", when, got, want)
		}
	}
	inner := ""
	if how == "two" {
		inner = " 9/2"
	}
	lanes := func(pcp int) map[string]bool {
		return map[string]bool{fmt.Sprintf("%d: 7/%d%s", port, pcp, inner): true,
			fmt.Sprintf("%d: 7/3%s", port+1, inner): true}
	}
	tags(t, raw) // the connections' first packets, and those of IPv6
	check("with the entry", 8, lanes(5))
	changed := entry
	changed.PCP = "0"
	vethtest.Write(t, c, entry, changed)
	check("with PCP 0", 2, lanes(0))
	vethtest.Write(t, c, changed, nil)
	check("without the entry", 2, lanes(3))
}

// TestPCPBesideTheData is TestPCPOnTheWire for a kernel without VLAN devices: a program before niclane's
// gives datagrams a tag with PCP 3, beside the data.
func TestPCPBesideTheData(t *testing.T) {
	withFilter(t, func(t *testing.T, tcc *tc.Client, c *bpf.Client) {
		toFar(t, func(peer far) {
			var raw int
			var to string
			peer.do(func() {
				raw = packetSocket(t, "v1")
				must.Do(t, unix.SetsockoptInt(raw, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
				to = vethtest.Interface(t, "v1").HardwareAddr.String()
			})
			defer unix.Close(raw)
			for _, addr := range []string{"10.9.0.2", "fd00:9::2"} {
				vethtest.Command(t, fmt.Sprintf("ip neigh replace %s lladdr %s dev v0", addr, to))
			}
			push, err := bpf.VLANProgram(3<<13 | 7)
			must.Do(t, err)
			defer push.Close()
			must.Do(t, tcc.AddBPF(device.Filter{Dev: "v0", Parent: "egress", Pref: 5, Handle: 1, Program: "push"},
				push.FD()))
			vethtest.Write(t, c, nil, filter)
			for family, sa := range map[int]unix.Sockaddr{
				4: &unix.SockaddrInet4{Addr: [4]byte{10, 9, 0, 2}, Port: 9},
				6: &unix.SockaddrInet6{Addr: [16]byte{0: 0xfd, 3: 9, 15: 2}, Port: 9},
			} {
				entry := device.FilterEntry{Filter: filter.Key(),
					Match: device.Match{Family: family, Protocol: "udp", LocalPort: port}, PCP: "5"}
				vethtest.Write(t, c, nil, entry)
				check := func(when string, pcp int) {
					t.Helper()
					tags(t, raw)
					for _, from := range []int{port, port + 1} {
						sendFrom(t, from, sa)
					}
					want := map[string]bool{fmt.Sprintf("%d: 7/%d", port, pcp): true, fmt.Sprintf("%d: 7/3", port+1): true}
					if got := tags(t, raw); !maps.Equal(got, want) {
						t.Errorf("IPv%d, %s: port, VLAN ID and PCP are %v, want %v", family, when, got, want)
					}
				}
				check("with the entry", 5)
				vethtest.Write(t, c, entry, nil)
				check("without the entry", 3)
			}
		})
	})
}

// sendFrom sends a datagram from a port.
func sendFrom(t *testing.T, from int, to unix.Sockaddr) {
	t.Helper()
	fd := socket(t, to, unix.SOCK_DGRAM)
	defer unix.Close(fd)
	var own unix.Sockaddr = &unix.SockaddrInet4{Port: from}
	if _, six := to.(*unix.SockaddrInet6); six {
		own = &unix.SockaddrInet6{Port: from}
	}
	must.Do(t, unix.Bind(fd, own))
	must.Do(t, unix.Sendto(fd, []byte("hello"), 0, to))
}

// another returns an address with the next port.
func another(sa unix.Sockaddr) unix.Sockaddr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return &unix.SockaddrInet4{Addr: sa.Addr, Port: sa.Port + 1}
	case *unix.SockaddrInet6:
		return &unix.SockaddrInet6{Addr: sa.Addr, Port: sa.Port + 1}
	}
	panic(sa)
}

// tags reads the datagrams and the TCP packets with data that the socket fd at v1 has received. It returns
// the ports from which they came with the ID and the PCP of each tag: "11211: 7/5 9/2".
func tags(t *testing.T, fd int) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	b, oob := make([]byte, 1<<16), make([]byte, 128)
	for {
		n, oobn, _, sa, err := unix.Recvmsg(fd, b, oob, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return out
		}
		must.Do(t, err)
		if sa.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		must.Do(t, err)
		var all []string
		add := func(tci uint16) { all = append(all, fmt.Sprintf("%d/%d", tci&0xfff, tci>>13)) }
		// struct tpacket_auxdata: tp_status, then tp_vlan_tci at 16.
		aux := messages[0].Data
		if binary.NativeEndian.Uint32(aux)&unix.TP_STATUS_VLAN_VALID != 0 {
			add(binary.NativeEndian.Uint16(aux[16:]))
		}
		p := b[12:n]
		for protocol := binary.BigEndian.Uint16(p); protocol == 0x8100 || protocol == 0x88a8; {
			add(binary.BigEndian.Uint16(p[2:]))
			p = p[4:]
			protocol = binary.BigEndian.Uint16(p)
		}
		ip, transport, protocol := p[2:], 40, p[8]
		if ip[0]>>4 == 4 {
			transport, protocol = int(ip[0]&15)*4, ip[9]
		}
		switch {
		case protocol == unix.IPPROTO_TCP && len(ip) > transport+int(ip[transport+12]>>4)*4:
		case protocol == unix.IPPROTO_UDP:
		default:
			continue
		}
		out[fmt.Sprintf("%d: %s", binary.BigEndian.Uint16(ip[transport:]), strings.Join(all, " "))] = true
	}
}

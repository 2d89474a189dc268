// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// A wire has the TCP packets with data that arrived at v1 from a port.
type wire struct {
	classes map[byte]int // by traffic class (DSCP and ECN)
	large   int          // GSO packets
}

// capture reads the packets that the socket fd at v1 has received.
func capture(t *testing.T, fd int, from uint16) wire {
	t.Helper()
	w := wire{classes: map[byte]int{}}
	b := make([]byte, 1<<16)
	for {
		n, sa, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return w
		}
		must.Do(t, err)
		if sa.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		ip, tcp := b[14:n], 40
		var class byte
		switch ip[0] >> 4 {
		case 4:
			class, tcp = ip[1], int(ip[0]&15)*4
			sum := uint32(0)
			for i := 0; i < tcp; i += 2 {
				sum += uint32(binary.BigEndian.Uint16(ip[i:]))
			}
			if sum>>16+sum&0xffff != 0xffff {
				t.Errorf("a packet has a wrong IPv4 checksum: %x", ip[:tcp])
			}
		case 6:
			class = byte(binary.BigEndian.Uint16(ip) >> 4)
		default:
			continue
		}
		if len(ip) < tcp+20 || binary.BigEndian.Uint16(ip[tcp:]) != from || len(ip) == tcp+int(ip[tcp+12]>>4)*4 {
			continue
		}
		w.classes[class]++
		if n > 1600 {
			w.large++
		}
	}
}

// TestDSCPOnTheWire: the packets of a connection leave with the DSCP of their lane and with their
// own ECN, as GSO packets, as segments, and with a VLAN tag. The data stays whole. Without the
// entry, they leave with the DSCP of the socket.
func TestDSCPOnTheWire(t *testing.T) {
	for name, tt := range targets {
		for _, how := range []string{"gso", "segments", "vlan"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
					toFar(t, func(peer far) { marks(t, c, peer, tt.sa, tt.match, how) })
				})
			})
		}
	}
}

func marks(t *testing.T, c *bpf.Client, peer far, sa unix.Sockaddr, match device.Match, how string) {
	if how == "segments" {
		vethtest.Command(t, "ethtool -K v0 tso off gso off")
	}
	if how == "vlan" { // the tag is beside the data
		onVLAN(t, "v0", 1)
		peer.do(func() { onVLAN(t, "v1", 2) })
	}
	must.Do(t, os.WriteFile("/proc/sys/net/ipv4/tcp_ecn", []byte("1"), 0))
	var raw int
	peer.do(func() {
		must.Do(t, os.WriteFile("/proc/sys/net/ipv4/tcp_ecn", []byte("1"), 0))
		raw = packetSocket(t, "v1")
	})
	defer unix.Close(raw)
	vethtest.Write(t, c, nil, filter)
	marked := device.FilterEntry{Filter: filter.Key(), Match: match, DSCP: "ef"}
	vethtest.Write(t, c, nil, marked)
	fd := listen(t, sa)
	defer unix.Close(fd)
	k := connect(t, peer, fd, sa)
	defer k.close()
	// RFC 3168: packets with data are ECN-capable (2). AF11 is another DSCP than the lane's.
	if _, v6 := sa.(*unix.SockaddrInet6); v6 {
		must.Do(t, unix.SetsockoptInt(k.to, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 10<<2))
	} else {
		must.Do(t, unix.SetsockoptInt(k.to, unix.IPPROTO_IP, unix.IP_TOS, 10<<2))
	}
	k.exchange(t, 20)
	got := capture(t, raw, port)
	if !only(t, k.to, got.classes, 46) || (got.large > 0) != (how != "segments") {
		t.Errorf("packets by DSCP and ECN %v, %d larger than the link's; want only %d", got.classes, got.large, 46<<2|2)
	}
	vethtest.Write(t, c, marked, nil)
	k.exchange(t, 2)
	if got := capture(t, raw, port); !only(t, k.to, got.classes, 10) {
		t.Errorf("without the entry, packets by DSCP and ECN %v, want only %d", got.classes, 10<<2|2)
	}
}

// only reports whether all packets of a connection have the DSCP and are ECN-capable, but for those that TCP
// has sent again (RFC 3168, 6.1.5).
func only(t *testing.T, fd int, classes map[byte]int, dscp byte) bool {
	t.Helper()
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	must.Do(t, err)
	kinds := 1
	if again, found := classes[dscp<<2]; found && again <= int(info.Total_retrans) {
		kinds = 2
	}
	return len(classes) == kinds && classes[dscp<<2|2] > 0
}

// onVLAN moves a device's addresses to its VLAN 7.
func onVLAN(t *testing.T, dev string, host int) {
	t.Helper()
	vethtest.IP(t, fmt.Sprintf(`link add link %[1]s name %[1]s.7 type vlan id 7
		addr flush dev %[1]s
		link set %[1]s.7 up
		addr add 10.9.0.%[2]d/24 dev %[1]s.7
		addr add fd00:9::%[2]d/64 dev %[1]s.7 nodad`, dev, host))
}

// packetSocket returns a socket that receives what passes a device. The kernel takes a VLAN tag
// out of the data.
func packetSocket(t *testing.T, dev string) int {
	t.Helper()
	const all = 3 // ETH_P_ALL
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	must.Do(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all << 8, Ifindex: vethtest.Interface(t, dev).Index}))
	return fd
}

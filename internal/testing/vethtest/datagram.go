// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// A Datagram is a UDP datagram over IPv4, from 10.9.0.Source to 10.9.0.1, without a UDP
// checksum.
type Datagram struct {
	VLAN     uint16 // 0: no tag
	Source   byte
	From, To uint16 // ports
	Payload  int    // bytes, at most 1472
}

// Frame returns an Ethernet frame with the datagram. from and to give its MAC addresses.
func (d Datagram) Frame(from, to *net.Interface) []byte {
	be := binary.BigEndian
	b := append(append([]byte{}, to.HardwareAddr...), from.HardwareAddr...)
	if d.VLAN != 0 {
		b = be.AppendUint16(be.AppendUint16(b, unix.ETH_P_8021Q), d.VLAN)
	}
	b = be.AppendUint16(b, unix.ETH_P_IP)
	ip := len(b)
	b = append(b, 0x45, 0)
	b = be.AppendUint16(b, uint16(20+8+d.Payload))
	b = append(b, 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 9, 0, d.Source, 10, 9, 0, 1)
	var sum uint32
	for i := ip; i < len(b); i += 2 {
		sum += uint32(be.Uint16(b[i:]))
	}
	be.PutUint16(b[ip+10:], ^uint16(sum+sum>>16))
	b = be.AppendUint16(be.AppendUint16(b, d.From), d.To)
	b = be.AppendUint16(be.AppendUint16(b, uint16(8+d.Payload)), 0)
	return append(b, make([]byte, d.Payload)...)
}

// ParseDatagram parses a frame with a UDP datagram, without a VLAN tag and without IPv4 options.
// For all other frames, ok is false.
func ParseDatagram(b []byte) (d Datagram, ok bool) {
	const ip, udp, payload = 14, 14 + 20, 14 + 20 + 8
	be := binary.BigEndian
	if len(b) < payload || be.Uint16(b[12:]) != unix.ETH_P_IP || b[ip] != 0x45 || b[ip+9] != unix.IPPROTO_UDP {
		return d, false
	}
	return Datagram{Source: b[ip+15], From: be.Uint16(b[udp:]), To: be.Uint16(b[udp+2:]), Payload: len(b) - payload},
		true
}

// Interface returns a device of the calling thread's network namespace.
func Interface(t testing.TB, name string) *net.Interface {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// SendFrame sends a frame n times on a device. The socket has the given priority (SO_PRIORITY,
// socket(7)).
func SendFrame(t testing.TB, device string, priority, n int, frame []byte) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, priority))
	to := &unix.SockaddrLinklayer{Ifindex: Interface(t, device).Index}
	for range n {
		must.Do(t, unix.Sendto(fd, frame, 0, to))
	}
}

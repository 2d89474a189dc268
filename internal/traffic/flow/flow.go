// SPDX-License-Identifier: Apache-2.0

// Package flow encodes a device.Match for niclane's eBPF programs: a masked tuple and its mask,
// in the layout of struct flow of internal/kernel/bpf/c/include/niclane/packet.h. It refuses
// matches that are not canonical, so that each meaning has one encoding.
package flow

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"unsafe"

	"github.com/niclane/niclane/lane/device"
)

// A Flow is struct flow. Ports and addresses are in network byte order; an IPv4 address is in
// the first four bytes.
type Flow struct {
	Family     uint8
	Protocol   uint8
	VLAN       uint16
	LocalPort  [2]byte
	RemotePort [2]byte
	Local      [16]byte
	Remote     [16]byte
}

// A Key is struct flow_key: a flow, masked by the pattern with the index Pattern.
type Key struct {
	Pattern uint64
	Flow    Flow
}

// AnyProtocol reports whether f is the mask of a match without a protocol (Unshaped of
// device.FilterEntry). Each other mask compares the protocol.
func (f *Flow) AnyProtocol() bool { return f.Protocol == 0 }

// Bytes returns f's own memory as bytes, in the layout of the programs. A change of these bytes
// changes f.
func (f *Flow) Bytes() *[unsafe.Sizeof(Flow{})]byte {
	return (*[unsafe.Sizeof(Flow{})]byte)(unsafe.Pointer(f))
}

// VLANMask covers a VLAN's ID.
const VLANMask = 0xfff

// IP protocol numbers.
const (
	TCP = 6
	UDP = 17
)

// Encode returns a match's masked flow and its mask.
func Encode(m device.Match) (f, mask Flow, err error) {
	if m.Family != 4 && m.Family != 6 {
		return f, mask, fmt.Errorf("family %d: want 4 or 6", m.Family)
	}
	f.Family, mask.Family = uint8(m.Family), 0xff
	switch m.Protocol {
	case "tcp":
		f.Protocol, mask.Protocol = TCP, 0xff
	case "udp":
		f.Protocol, mask.Protocol = UDP, 0xff
	case "":
		if m != (device.Match{Family: m.Family, Remote: m.Remote}) || m.Remote == "" {
			return f, mask, fmt.Errorf("%s: without a protocol, want nothing but a remote network", m)
		}
	default:
		return f, mask, fmt.Errorf("protocol %q: want tcp or udp", m.Protocol)
	}
	if m.VLAN < 0 || m.VLAN > 4094 {
		return f, mask, fmt.Errorf("VLAN %d: want 1 to 4094, or 0 for any", m.VLAN)
	}
	if m.VLAN != 0 {
		f.VLAN, mask.VLAN = uint16(m.VLAN), VLANMask
	}
	if f.LocalPort, mask.LocalPort, err = encodePort(m.LocalPort, m.LocalPortBits); err != nil {
		return f, mask, fmt.Errorf("local port: %w", err)
	}
	if f.RemotePort, mask.RemotePort, err = encodePort(m.RemotePort, m.RemotePortBits); err != nil {
		return f, mask, fmt.Errorf("remote port: %w", err)
	}
	if f.Local, mask.Local, err = encodePrefix(m.Family, m.Local); err != nil {
		return f, mask, fmt.Errorf("local: %w", err)
	}
	if f.Remote, mask.Remote, err = encodePrefix(m.Family, m.Remote); err != nil {
		return f, mask, fmt.Errorf("remote: %w", err)
	}
	return f, mask, nil
}

func encodePort(p uint16, length int) (v, mask [2]byte, err error) {
	// A block that starts at port 0 would match all packets without ports.
	if length < 0 || length > 15 || p&^device.PortMask(length) != 0 || p == 0 && length != 0 {
		return v, mask, fmt.Errorf("%d/%d is not a canonical block of ports", p, length)
	}
	binary.BigEndian.PutUint16(v[:], p)
	if p != 0 {
		binary.BigEndian.PutUint16(mask[:], device.PortMask(length))
	}
	return v, mask, nil
}

func encodePrefix(family int, s string) (v, mask [16]byte, err error) {
	if s == "" {
		return v, mask, nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return v, mask, err
	}
	if p != p.Masked() || p.Bits() == 0 || p.Addr().Is4() != (family == 4) || p.Addr().Is4In6() {
		return v, mask, fmt.Errorf("%q is not a canonical IPv%d prefix of at least one bit", s, family)
	}
	copy(v[:], p.Addr().AsSlice())
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return v, mask, nil
}

// Decode is the inverse of Encode.
func Decode(f, mask Flow) (device.Match, error) {
	m := device.Match{Family: int(f.Family)}
	if m.Family != 4 && m.Family != 6 {
		return m, fmt.Errorf("flow of family %d", f.Family)
	}
	switch {
	case mask.Protocol == 0:
	case f.Protocol == TCP:
		m.Protocol = "tcp"
	case f.Protocol == UDP:
		m.Protocol = "udp"
	default:
		return m, fmt.Errorf("flow of protocol %d", f.Protocol)
	}
	m.VLAN = int(f.VLAN & mask.VLAN)
	m.LocalPort, m.LocalPortBits = decodePort(f.LocalPort, mask.LocalPort)
	m.RemotePort, m.RemotePortBits = decodePort(f.RemotePort, mask.RemotePort)
	m.Local = decodePrefix(m.Family, f.Local, mask.Local)
	m.Remote = decodePrefix(m.Family, f.Remote, mask.Remote)
	return m, nil
}

func decodePort(v, mask [2]byte) (port uint16, length int) {
	return binary.BigEndian.Uint16(v[:]), bits.OnesCount16(binary.BigEndian.Uint16(mask[:])) % 16
}

func decodePrefix(family int, v, mask [16]byte) string {
	n := 0
	for _, b := range mask {
		n += bits.OnesCount8(b)
	}
	if n == 0 {
		return ""
	}
	a := netip.AddrFrom16(v)
	if family == 4 {
		a = netip.AddrFrom4([4]byte(v[:4]))
	}
	return netip.PrefixFrom(a, n).String()
}

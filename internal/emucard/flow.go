// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"unsafe"

	"github.com/niclane/niclane/device"
)

// A flow is struct flow of c/card.c.
type flow struct {
	Family     uint8
	Protocol   uint8
	VLAN       uint16
	LocalPort  [2]byte
	RemotePort [2]byte
	Local      [16]byte
	Remote     [16]byte
}

// A flowKey is struct flow_key.
type flowKey struct {
	Pattern uint64
	Flow    flow
}

// A pattern is struct pattern. Used is raised before a rule is added and
// lowered after one was removed: a kill can leave it too high, never too low.
type pattern struct {
	Mask flow
	Used uint32
	_    uint32
}

const (
	vlanMask = 0xfff
	protoTCP = 6
	protoUDP = 17
)

func (f *flow) bytes() *[unsafe.Sizeof(flow{})]byte {
	return (*[unsafe.Sizeof(flow{})]byte)(unsafe.Pointer(f))
}

// encode gives the masked flow of a match, and its mask.
func encode(m device.Match) (f, mask flow, err error) {
	if m.Family != 4 && m.Family != 6 {
		return f, mask, fmt.Errorf("family %d: want 4 or 6", m.Family)
	}
	f.Family, mask.Family = uint8(m.Family), 0xff
	switch m.Protocol {
	case "tcp":
		f.Protocol = protoTCP
	case "udp":
		f.Protocol = protoUDP
	default:
		return f, mask, fmt.Errorf("protocol %q: want tcp or udp", m.Protocol)
	}
	mask.Protocol = 0xff
	if m.VLAN < 0 || m.VLAN > 4094 {
		return f, mask, fmt.Errorf("VLAN %d: want 1 to 4094, or 0 for any", m.VLAN)
	}
	if m.VLAN != 0 {
		f.VLAN, mask.VLAN = uint16(m.VLAN), vlanMask
	}
	f.LocalPort, mask.LocalPort = encodePort(m.LocalPort)
	f.RemotePort, mask.RemotePort = encodePort(m.RemotePort)
	if f.Local, mask.Local, err = encodePrefix(m.Family, m.Local); err != nil {
		return f, mask, fmt.Errorf("local: %w", err)
	}
	if f.Remote, mask.Remote, err = encodePrefix(m.Family, m.Remote); err != nil {
		return f, mask, fmt.Errorf("remote: %w", err)
	}
	return f, mask, nil
}

func encodePort(p uint16) (v, mask [2]byte) {
	binary.BigEndian.PutUint16(v[:], p)
	if p != 0 {
		mask = [2]byte{0xff, 0xff}
	}
	return v, mask
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

// decode is the inverse of encode.
func decode(f, mask flow) (device.Match, error) {
	m := device.Match{Family: int(f.Family), VLAN: int(f.VLAN & mask.VLAN)}
	if m.Family != 4 && m.Family != 6 {
		return m, fmt.Errorf("rule of family %d", f.Family)
	}
	switch f.Protocol {
	case protoTCP:
		m.Protocol = "tcp"
	case protoUDP:
		m.Protocol = "udp"
	default:
		return m, fmt.Errorf("rule of protocol %d", f.Protocol)
	}
	m.LocalPort = binary.BigEndian.Uint16(f.LocalPort[:])
	m.RemotePort = binary.BigEndian.Uint16(f.RemotePort[:])
	m.Local = decodePrefix(m.Family, f.Local, mask.Local)
	m.Remote = decodePrefix(m.Family, f.Remote, mask.Remote)
	return m, nil
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

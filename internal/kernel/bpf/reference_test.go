// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"net/netip"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// reference is the classifier in Go. It returns the flow of a frame, or false if the frame
// is not IP.
func reference(b []byte) (f flow.Flow, ok bool) {
	if len(b) < 14 {
		return f, false
	}
	proto, rest := binary.BigEndian.Uint16(b[12:]), b[14:]
	for tags := range 2 {
		if proto != 0x8100 && proto != 0x88a8 {
			break
		}
		if len(rest) < 4 {
			return flow.Flow{}, false
		}
		if tags == 0 {
			f.VLAN = binary.BigEndian.Uint16(rest) & flow.VLANMask
		}
		proto, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	switch proto {
	case 0x0800:
		return reference4(f, rest)
	case 0x86dd:
		return reference6(f, rest)
	}
	return flow.Flow{}, false
}

func reference4(f flow.Flow, b []byte) (flow.Flow, bool) {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
		return flow.Flow{}, false
	}
	f.Family, f.Protocol = 4, b[9]
	copy(f.Local[:], b[12:16])
	copy(f.Remote[:], b[16:20])
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return f, true
	}
	return referencePorts(f, b, int(b[0]&15)*4), true
}

func reference6(f flow.Flow, b []byte) (flow.Flow, bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return flow.Flow{}, false
	}
	f.Family = 6
	copy(f.Local[:], b[8:24])
	copy(f.Remote[:], b[24:40])
	next, off := b[6], 40
	for range 6 {
		if next != 0 && next != 43 && next != 44 && next != 51 && next != 60 {
			break
		}
		if len(b) < off+4 {
			return flow.Flow{}, false
		}
		kind := next
		next = b[off]
		switch kind {
		case 44:
			if binary.BigEndian.Uint16(b[off+2:])&0xfff9 != 0 {
				f.Protocol = next
				return f, true
			}
			off += 8
		case 51:
			off += (int(b[off+1]) + 2) * 4
		default:
			off += (int(b[off+1]) + 1) * 8
		}
	}
	f.Protocol = next
	return referencePorts(f, b, off), true
}

func referencePorts(f flow.Flow, b []byte, off int) flow.Flow {
	if (f.Protocol == flow.TCP || f.Protocol == flow.UDP) && len(b) >= off+4 {
		copy(f.LocalPort[:], b[off:])
		copy(f.RemotePort[:], b[off+2:])
	}
	return f
}

// matches reports whether a flow fits a match. It compares field by field, without masks.
func matches(m device.Match, f flow.Flow) bool {
	addr := func(b [16]byte) netip.Addr {
		if f.Family == 4 {
			return netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrFrom16(b)
	}
	in := func(prefix string, b [16]byte) bool {
		return prefix == "" || netip.MustParsePrefix(prefix).Contains(addr(b))
	}
	port := func(want uint16, bits int, b [2]byte) bool {
		last := want
		if bits != 0 {
			last += 1<<(16-bits) - 1
		}
		have := binary.BigEndian.Uint16(b[:])
		return want == 0 || want <= have && have <= last
	}
	return m.Family == int(f.Family) &&
		map[string]uint8{"tcp": flow.TCP, "udp": flow.UDP}[m.Protocol] == f.Protocol &&
		(m.VLAN == 0 || m.VLAN == int(f.VLAN)) &&
		in(m.Local, f.Local) && in(m.Remote, f.Remote) &&
		port(m.LocalPort, m.LocalPortBits, f.LocalPort) && port(m.RemotePort, m.RemotePortBits, f.RemotePort)
}

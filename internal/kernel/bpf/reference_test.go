// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"net/netip"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// looked is a program in Go: it looks up a frame among entries, and if it finds none, the packet in a
// tunnel among entries with a local address. It returns the last flow that it looked up. arrives says
// that this host is the frame's destination.
func looked[K comparable](b []byte, arrives bool, entries map[K]device.Match) (f flow.Flow, k K, ok bool) {
	f, transport, isIP := reference(b)
	if !isIP {
		return f, k, false
	}
	port := f.RemotePort // the destination's
	if k, ok = best(seen(f, arrives), entries); ok {
		return seen(f, arrives), k, true
	}
	inner, isInner := referenceInner(f, port, transport)
	if !isInner {
		return seen(f, arrives), k, false
	}
	addressed := map[K]device.Match{}
	for k, m := range entries {
		if m.Local != "" {
			addressed[k] = m
		}
	}
	k, ok = best(seen(inner, arrives), addressed)
	return seen(inner, arrives), k, ok
}

// seen returns a flow, whose local end is the source, as this host sees it.
func seen(f flow.Flow, arrives bool) flow.Flow {
	if arrives {
		f.Local, f.Remote = f.Remote, f.Local
		f.LocalPort, f.RemotePort = f.RemotePort, f.LocalPort
	}
	return f
}

// reference returns the flow of a frame that leaves, and the bytes from the transport header on (nil in
// a fragment). ok is false if the frame is not IP.
func reference(b []byte) (f flow.Flow, transport []byte, ok bool) {
	if len(b) < 14 {
		return f, nil, false
	}
	return referenceFrom(f, false, binary.BigEndian.Uint16(b[12:]), b[14:])
}

// referenceFrom is reference for the rest of a frame behind its EtherType proto. f has the VLAN of a tag
// before, if tagged.
func referenceFrom(f flow.Flow, tagged bool, proto uint16, rest []byte) (flow.Flow, []byte, bool) {
	for range 2 {
		if proto != 0x8100 && proto != 0x88a8 {
			break
		}
		if len(rest) < 4 {
			return flow.Flow{}, nil, false
		}
		if !tagged {
			f.VLAN = binary.BigEndian.Uint16(rest) & flow.VLANMask
		}
		tagged = true
		proto, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	switch proto {
	case 0x0800:
		return reference4(f, rest)
	case 0x86dd:
		return reference6(f, rest)
	}
	return flow.Flow{}, nil, false
}

// The tests' tunnels.
const vxlanPort, genevePort = 4789, 6081

// referenceInner returns the flow of the packet inside a tunnel. outer is the tunnel's flow, port its
// destination port.
func referenceInner(outer flow.Flow, port [2]byte, transport []byte) (f flow.Flow, ok bool) {
	const ethernet = 0x6558
	if outer.Protocol != flow.UDP || len(transport) < 12 {
		return f, false
	}
	header, proto, options := transport[8:], uint16(ethernet), 0
	switch binary.BigEndian.Uint16(port[:]) {
	case vxlanPort:
		if header[0]&8 == 0 {
			return f, false
		}
		if header[0]&4 != 0 {
			proto = map[byte]uint16{1: 0x0800, 2: 0x86dd, 3: ethernet}[header[3]]
		}
	case genevePort:
		if header[0]>>6 != 0 {
			return f, false
		}
		options, proto = int(header[0]&63)*4, binary.BigEndian.Uint16(header[2:])
	default:
		return f, false
	}
	if len(header) < 8+options {
		return f, false
	}
	rest := header[8+options:]
	if proto == ethernet {
		if len(rest) < 14 {
			return f, false
		}
		proto, rest = binary.BigEndian.Uint16(rest[12:]), rest[14:]
	}
	f, _, ok = referenceFrom(flow.Flow{VLAN: outer.VLAN}, true, proto, rest)
	return f, ok
}

func reference4(f flow.Flow, b []byte) (flow.Flow, []byte, bool) {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
		return flow.Flow{}, nil, false
	}
	f.Family, f.Protocol = 4, b[9]
	copy(f.Local[:], b[12:16])
	copy(f.Remote[:], b[16:20])
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return f, nil, true
	}
	return referencePorts(f, b, int(b[0]&15)*4)
}

func reference6(f flow.Flow, b []byte) (flow.Flow, []byte, bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return flow.Flow{}, nil, false
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
			return flow.Flow{}, nil, false
		}
		kind := next
		next = b[off]
		switch kind {
		case 44:
			if binary.BigEndian.Uint16(b[off+2:])&0xfff9 != 0 {
				f.Protocol = next
				return f, nil, true
			}
			off += 8
		case 51:
			off += (int(b[off+1]) + 2) * 4
		default:
			off += (int(b[off+1]) + 1) * 8
		}
	}
	f.Protocol = next
	return referencePorts(f, b, off)
}

func referencePorts(f flow.Flow, b []byte, off int) (flow.Flow, []byte, bool) {
	transport := b[min(off, len(b)):]
	if (f.Protocol == flow.TCP || f.Protocol == flow.UDP) && len(transport) >= 4 {
		copy(f.LocalPort[:], transport)
		copy(f.RemotePort[:], transport[2:])
	}
	return f, transport, true
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

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// matches returns a member's matches as niclane's own programs compare them, with blocks in place
// of long ranges of ports. It expands each member only once: for a thousand members, this takes
// as long as all other planning.
func (f *fit) matches(m *intent.Member) []device.Match {
	ms, ok := f.expanded[m]
	if !ok {
		ms = matches(m, f.in.Group.VLANs, intent.Blocks)
		if f.expanded == nil {
			all := 0
			for i := range f.in.Lanes {
				all += len(f.in.Lanes[i].Members)
			}
			f.expanded = make(map[*intent.Member][]device.Match, all)
		}
		f.expanded[m] = ms
	}
	return ms
}

// rules returns a member's matches as cards compare them, with single ports.
func (f *fit) rules(m *intent.Member) []device.Match {
	if len(m.Ports) <= intent.FewPorts && len(m.RemotePorts) <= intent.FewPorts {
		return f.matches(m)
	}
	return matches(m, f.in.Group.VLANs, func(ports []uint16) []intent.PortBlock {
		out := make([]intent.PortBlock, len(ports))
		for i, p := range ports {
			out[i] = intent.PortBlock{Port: p, Bits: 16}
		}
		return out
	})
}

// matches expands a member into matches. Each combination of local address, local port block,
// remote address and remote port block is one match, for each address family and VLAN. They are
// in the order of the file.
func matches(m *intent.Member, vlans []int, blocks func([]uint16) []intent.PortBlock) []device.Match {
	localPorts, remotePorts := orAny(blocks(m.Ports)), orAny(blocks(m.RemotePorts))
	if len(vlans) == 0 {
		vlans = []int{0}
	}
	var out []device.Match
	for _, family := range []int{4, 6} {
		local := ofFamily(m.Addrs, family)
		remote := ofFamily(m.RemoteAddrs, family)
		if local == nil || remote == nil {
			continue
		}
		out = slices.Grow(out, len(vlans)*len(local)*len(localPorts)*len(remote)*len(remotePorts))
		for _, vlan := range vlans {
			for _, la := range local {
				for _, lp := range localPorts {
					for _, ra := range remote {
						for _, rp := range remotePorts {
							out = append(out, device.Match{
								Family: family, Protocol: m.Protocol, VLAN: vlan,
								Local: la, LocalPort: lp.Port, LocalPortBits: lp.Bits % 16,
								Remote: ra, RemotePort: rp.Port, RemotePortBits: rp.Bits % 16,
							})
						}
					}
				}
			}
		}
	}
	return out
}

// ofFamily returns the prefixes of an address family as text. It returns [""] (any address) if ps
// is empty, and nil if all prefixes are of the other family.
func ofFamily(ps []netip.Prefix, family int) []string {
	if len(ps) == 0 {
		return anyAddress
	}
	var out []string
	for _, p := range ps {
		if p.Addr().Is4() != (family == 4) {
			continue
		}
		if p.Bits() == 0 { // 0.0.0.0/0 and ::/0 match the whole family
			return anyAddress
		}
		var b [64]byte
		out = append(out, string(p.Masked().AppendTo(b[:0])))
	}
	return out
}

func orAny(ports []intent.PortBlock) []intent.PortBlock {
	if len(ports) == 0 {
		return anyPort
	}
	return ports
}

// Lists with one value that matches everything, for fields that a member does not compare. Do not
// change them.
var (
	anyAddress = []string{""}
	anyPort    = []intent.PortBlock{{}}
)

// noteFragments adds a note with the lanes that match UDP ports: fragments of datagrams have no
// ports (internal/kernel/bpf/c/include/niclane/packet.h). TCP has no such problem, because its
// segments fit the MTU.
func (f *fit) noteFragments(lanes []*deviceLane) {
	var names []string
	for _, l := range lanes {
		if slices.ContainsFunc(l.Members, func(m intent.Member) bool {
			return m.Protocol == "udp" && len(m.Ports)+len(m.RemotePorts) > 0
		}) {
			names = append(names, l.Name)
		}
	}
	if len(names) > 0 && (f.reserves() || f.redirects() || f.chooses() || !f.byGroup() && f.priority(lanes[0]) != "" ||
		f.departs(lanes)) {
		f.notef("lanes by UDP port (%s): fragments of datagrams larger than the MTU have no ports, "+
			"and belong to the default lane", strings.Join(names, ", "))
	}
}

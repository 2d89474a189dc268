// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/intent"
)

// matches are a member's, expanded once: of a thousand members, that is as much
// work as all else that is done with them.
func (f *fit) matches(m *intent.Member) []device.Match {
	ms, ok := f.expanded[m]
	if !ok {
		ms = matches(m, f.in.Group.VLANs)
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

// matches expands a member into the tuples that rules and classifiers
// compare: the product of its addresses, ports, remote addresses and remote
// ports, per address family and VLAN, in the order given.
func matches(m *intent.Member, vlans []int) []device.Match {
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
		out = slices.Grow(out, len(vlans)*len(local)*max(1, len(m.Ports))*len(remote)*max(1, len(m.RemotePorts)))
		for _, vlan := range vlans {
			for _, la := range local {
				for _, lp := range orAny(m.Ports) {
					for _, ra := range remote {
						for _, rp := range orAny(m.RemotePorts) {
							out = append(out, device.Match{
								Family: family, Protocol: m.Protocol, VLAN: vlan,
								Local: la, LocalPort: lp, Remote: ra, RemotePort: rp,
							})
						}
					}
				}
			}
		}
	}
	return out
}

// ofFamily returns the prefixes of a family as text, [""] (any) if no prefix
// was given at all, and nil if all that were given are of the other family.
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

func orAny(ports []uint16) []uint16 {
	if len(ports) == 0 {
		return anyPort
	}
	return ports
}

// What a member compares that compares none. They are not to be changed.
var (
	anyAddress = []string{""}
	anyPort    = []uint16{0}
)

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"

	"github.com/niclane/niclane/intent"
)

// A claim is a member and the lane it belongs to.
type claim struct {
	lane   *intent.Lane
	member *intent.Member
}

// checkOverlaps refuses members of different lanes that a packet could belong
// to at once: which lane it took would depend on the device. Each member is
// reported once, with the first member before it that it meets.
func (r *reader) checkOverlaps() {
	byPort := map[uint16][]claim{} // members with ports of their own
	var anyPort, all []claim
	for i := range r.in.Lanes {
		l := &r.in.Lanes[i]
		from := len(all)
		for j := range l.Members {
			c := claim{l, &l.Members[j]}
			if r.unsure[c.member.Path] {
				continue
			}
			all = append(all, c)
			if len(c.member.Ports) == 0 {
				r.meets(c, all[:from])
				continue
			}
			if r.meets(c, anyPort) {
				continue
			}
			for _, p := range c.member.Ports {
				if r.meets(c, byPort[p]) {
					break
				}
			}
		}
		for _, c := range all[from:] {
			if len(c.member.Ports) == 0 {
				anyPort = append(anyPort, c)
			}
			for _, p := range c.member.Ports {
				byPort[p] = append(byPort[p], c)
			}
		}
	}
}

// meets reports the first of others whose packets could be c's too.
func (r *reader) meets(c claim, others []claim) bool {
	for _, o := range others {
		packet, ok := common(o.member, c.member)
		if !ok {
			continue
		}
		at := (&File{at: r.at}).position(o.member.Path)
		r.failf(c.member.Path, "overlaps %s (line %d): %s would belong to lanes %s and %s",
			o.member.Path, at.line, packet, o.lane.Name, c.lane.Name)
		return true
	}
	return false
}

// common describes packets that belong to both members.
func common(a, b *intent.Member) (packet string, ok bool) {
	if a.Protocol != b.Protocol {
		return "", false
	}
	port, ok := commonPort(a.Ports, b.Ports)
	if !ok {
		return "", false
	}
	remotePort, ok := commonPort(a.RemotePorts, b.RemotePorts)
	if !ok {
		return "", false
	}
	for _, four := range []bool{true, false} {
		addr, ok := commonAddress(a.Addrs, b.Addrs, four)
		if !ok {
			continue
		}
		remote, ok := commonAddress(a.RemoteAddrs, b.RemoteAddrs, four)
		if !ok {
			continue
		}
		return packetText(a.Protocol, addr, port, remote, remotePort), true
	}
	return "", false
}

// commonPort returns a port of both ascending lists, 0 if both take any.
func commonPort(a, b []uint16) (uint16, bool) {
	if len(a) == 0 {
		a, b = b, a
	}
	if len(b) == 0 {
		if len(a) == 0 {
			return 0, true
		}
		return a[0], true
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			return a[i], true
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	return 0, false
}

// commonAddress returns the addresses of a family in both lists, the zero
// prefix if both take any.
func commonAddress(a, b []netip.Prefix, four bool) (netip.Prefix, bool) {
	if len(a) == 0 {
		a, b = b, a
	}
	for _, p := range a {
		if p.Addr().Is4() != four {
			continue
		}
		if len(b) == 0 {
			return p, true
		}
		for _, q := range b {
			if p.Overlaps(q) {
				if q.Bits() > p.Bits() {
					p = q
				}
				return p, true
			}
		}
	}
	return netip.Prefix{}, len(a) == 0
}

func packetText(protocol string, addr netip.Prefix, port uint16, remote netip.Prefix, remotePort uint16) string {
	side := func(word string, p netip.Prefix, port uint16) string {
		s := ""
		if p.IsValid() {
			s = addressText(p)
		}
		if port != 0 {
			if s != "" {
				s += " "
			}
			s += fmt.Sprintf("port %d", port)
		}
		if s == "" {
			return ""
		}
		return " " + word + " " + s
	}
	return protocol + side("to", addr, port) + side("from", remote, remotePort)
}

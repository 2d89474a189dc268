// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/niclane/niclane/intent"
)

// A claim is a member and the lane it belongs to.
type claim struct {
	lane   *intent.Lane
	member *intent.Member
}

// checkOverlaps refuses members of different lanes that a packet could belong
// to at once: which lane it took would depend on the device. Within a lane it
// refuses the same pattern twice. Each member is reported once, with the first
// member before it that it meets.
func (r *reader) checkOverlaps() {
	byPort := map[uint16][]claim{} // members with ports of their own
	var anyPort, all []claim
	for i := range r.in.Lanes {
		l := &r.in.Lanes[i]
		for j := range l.Members {
			c := claim{l, &l.Members[j]}
			if r.unsure[c.member.Path] {
				continue
			}
			if len(c.member.Ports) == 0 {
				r.meets(c, all)
				anyPort = append(anyPort, c)
			} else if !r.meets(c, anyPort) {
				for _, p := range c.member.Ports {
					if r.meets(c, byPort[p]) {
						break
					}
				}
			}
			for _, p := range c.member.Ports {
				byPort[p] = append(byPort[p], c)
			}
			all = append(all, c)
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
		line := r.Line(o.member.Path)
		switch {
		case o.lane != c.lane:
			r.Failf(c.member.Path, "overlaps %s (line %d): %s would belong to lanes %s and %s",
				o.member.Path, line, packet, o.lane.Name, c.lane.Name)
			return true
		case samePattern(o.member, c.member):
			r.Failf(c.member.Path, "repeats %s (line %d): %s is matched by both", o.member.Path, line, packet)
			return true
		}
	}
	return false
}

// samePattern reports whether two members that have packets in common would
// make the same rule, rather than one that is narrower than the other.
func samePattern(a, b *intent.Member) bool {
	return (len(a.Ports) == 0) == (len(b.Ports) == 0) &&
		(len(a.RemotePorts) == 0) == (len(b.RemotePorts) == 0) &&
		sharePrefix(a.Addrs, b.Addrs) && sharePrefix(a.RemoteAddrs, b.RemoteAddrs)
}

func sharePrefix(a, b []netip.Prefix) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return slices.ContainsFunc(a, func(p netip.Prefix) bool { return slices.Contains(b, p) })
}

// A group is a control group and the lane that it was given to.
type group struct {
	lane *intent.Lane
	name string
	path string
}

// checkCgroups refuses a control group, or one within another, in two lanes:
// its processes run on the processors of one.
func (r *reader) checkCgroups() {
	byName := map[string]group{}
	var groups []group
	for i := range r.in.Lanes {
		l := &r.in.Lanes[i]
		for j := range l.Members {
			if m := &l.Members[j]; m.Cgroup != "" {
				groups = append(groups, group{l, m.Cgroup, m.Path + ".cgroup"})
			}
		}
	}
	for _, g := range groups {
		if o, ok := byName[g.name]; ok && o.lane != g.lane {
			r.Failf(g.path, "found %s, which is in lane %s already (line %d)", g.name, o.lane.Name, r.Line(o.path))
			continue
		}
		byName[g.name] = g
	}
	for _, g := range groups {
		for dir := path.Dir(g.name); dir != "/"; dir = path.Dir(dir) {
			if o, ok := byName[dir]; ok && o.lane != g.lane {
				r.Failf(g.path, "found %s, which is within %s of lane %s (line %d)", g.name, dir, o.lane.Name, r.Line(o.path))
				break
			}
		}
	}
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

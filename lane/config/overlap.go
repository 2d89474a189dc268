// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// An entry is a member with its lane.
type entry struct {
	lane   *intent.Lane
	member *intent.Member
	order  int // place in the file
}

// checkOverlaps refuses members of different lanes that can match the same packet, because the
// packet's lane would then depend on the device. Within one lane, it refuses a repeated pattern.
// It reports each member at most once, with the first earlier member that overlaps it. A member
// with only single addresses, such as a pod, is compared only with members that have one of these
// addresses or a range.
func (r *reader) checkOverlaps() {
	var all, ranges roster
	single := make(map[netip.Addr]roster, r.members)
	var lists [][]entry // lists of members that one member may overlap
	for i := range r.in.Lanes {
		l := &r.in.Lanes[i]
		for j := range l.Members {
			c := entry{l, &l.Members[j], len(all.entries)}
			switch {
			case r.unsure[c.member.Path]:
				continue
			case hasRange(c.member.Addrs):
				lists = all.near(lists[:0], c.member)
				ranges.add(c)
			default:
				lists = ranges.near(lists[:0], c.member)
				for _, p := range c.member.Addrs {
					known := single[p.Addr()]
					lists = known.near(lists, c.member)
					known.add(c)
					single[p.Addr()] = known
				}
			}
			r.meets(lists, c)
			all.add(c)
		}
	}
}

// hasRange reports whether the list contains a network, or is empty, which means any.
func hasRange(ps []netip.Prefix) bool {
	return len(ps) == 0 || slices.ContainsFunc(ps, func(p netip.Prefix) bool { return !p.IsSingleIP() })
}

// A roster is a list of members in the order of the file.
type roster struct {
	entries []entry
	// sorted is the number of entries that are in anyPort and byPort already. near adds the rest
	// when it needs them: in most files, no member is compared with all others.
	sorted  int
	anyPort []entry // with any port, or a long range
	byPort  map[uint16][]entry
}

// few is the number of entries up to which near returns all entries: comparing so few is faster
// than sorting them by port.
const few = 8

func (r *roster) add(c entry) { r.entries = append(r.entries, c) }

func (r *roster) sort() {
	if r.byPort == nil {
		r.byPort = map[uint16][]entry{}
	}
	for _, c := range r.entries[r.sorted:] {
		if len(c.member.Ports) == 0 || len(c.member.Ports) > intent.FewPorts {
			r.anyPort = append(r.anyPort, c)
		}
		if len(c.member.Ports) > intent.FewPorts {
			continue
		}
		for _, p := range c.member.Ports {
			r.byPort[p] = append(r.byPort[p], c)
		}
	}
	r.sorted = len(r.entries)
}

// near appends lists of entries to lists. Together, they contain every member that has a port in
// common with m.
func (r *roster) near(lists [][]entry, m *intent.Member) [][]entry {
	if len(r.entries) <= few || len(m.Ports) == 0 || len(m.Ports) > intent.FewPorts {
		return append(lists, r.entries)
	}
	r.sort()
	lists = append(lists, r.anyPort)
	for _, p := range m.Ports {
		lists = append(lists, r.byPort[p])
	}
	return lists
}

// meets reports an error for c if an earlier entry of the lists overlaps it in another lane, or
// repeats its pattern in the same lane. The error names the first such entry.
func (r *reader) meets(lists [][]entry, c entry) {
	first := c
	for _, list := range lists {
		for _, o := range list {
			if o.order >= first.order {
				break
			}
			if _, ok := common(o.member, c.member); ok && (o.lane != c.lane || samePattern(o.member, c.member)) {
				first = o
				break
			}
		}
	}
	if first.member == c.member {
		return
	}
	packet, _ := common(first.member, c.member)
	line := r.Line(first.member.Path)
	if first.lane != c.lane {
		r.Failf(c.member.Path, "overlaps %s (line %d): %s would belong to lanes %s and %s",
			first.member.Path, line, packet, first.lane.Name, c.lane.Name)
		return
	}
	r.Failf(c.member.Path, "repeats %s (line %d): %s is matched by both", first.member.Path, line, packet)
}

// samePattern reports whether two overlapping members would make the same rule. If they would
// not, one of them is narrower than the other.
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

// A group is one control group of a lane.
type group struct {
	lane *intent.Lane
	name string
	path string
}

// checkCgroups refuses a control group that two lanes have, or that is inside a group of another
// lane, because its processes can have the processors of only one lane.
func (r *reader) checkCgroups() {
	byName := map[string]group{}
	var groups []group
	for i := range r.in.Lanes {
		l := &r.in.Lanes[i]
		for j := range l.Members {
			m := &l.Members[j]
			r.checkCgroupSet(l, m)
			if m.Cgroup != "" {
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
				r.Failf(g.path, "found %s, which is within %s of lane %s (line %d)", g.name, dir, o.lane.Name,
					r.Line(o.path))
				break
			}
		}
	}
}

// checkCgroupSet refuses processors and nodes without a control group, those that differ from another
// member's in the same group, and processors that a busy poller has.
func (r *reader) checkCgroupSet(l *intent.Lane, m *intent.Member) {
	for _, key := range []struct {
		name string
		of   func(*intent.Member) []int
	}{
		{"cgroup-cpus", func(m *intent.Member) []int { return m.CgroupCPUs }},
		{"cgroup-mems", func(m *intent.Member) []int { return m.CgroupMems }},
	} {
		at := m.Path + "." + key.name
		if m.Cgroup == "" {
			if len(key.of(m)) > 0 {
				r.Failf(at, "found without cgroup, want the control group that it is for")
			}
			continue
		}
		for i := range l.Members {
			o := &l.Members[i]
			if o == m {
				break
			}
			if o.Cgroup == m.Cgroup && !slices.Equal(key.of(o), key.of(m)) {
				r.Failf(m.Path+".cgroup", "found %s with %s %s, and with %s in line %d; want the same in both",
					m.Cgroup, key.name, orNone(key.of(m)), orNone(key.of(o)), r.Line(o.Path+".cgroup"))
			}
		}
	}
	if l.Poller.Kind != intent.PollerBusy {
		return
	}
	for _, c := range m.CgroupCPUs {
		if slices.Contains(l.CPUs, c) {
			r.Failf(m.Path+".cgroup-cpus", "found processor %d, which is among cpus (line %d): a busy poller does "+
				"not share its processor", c, r.Line(l.Path+".cpus"))
			return
		}
	}
}

func orNone(ids []int) string {
	if len(ids) == 0 {
		return "left out"
	}
	return device.FormatCPUList(ids)
}

// common reports whether one packet can match both members. If so, it describes such a packet.
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

// commonPort returns a port that both lists match. An empty list matches every port; 0 means that
// both do. The lists are ascending.
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

// commonAddress returns the addresses of one family (four: IPv4) that both lists match. An empty
// list matches every address; the zero prefix means that both do.
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

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"

	"github.com/niclane/niclane/internal/lists"
	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// A Membership is the members of a file's lanes as they come and go, of which most
// stay. It checks those that come with those that are there, where WithMembers checks
// all with all: that was half of what it takes to read what a pod changes beside a
// hundred others. It is for one goroutine.
type Membership struct {
	file *File
	// Members that have been checked with each other, by lane, and what they have.
	in       map[string][]*intent.Member
	named    map[named]bool
	single   map[netip.Addr][]claim
	patterns int
	ports    int
	// paths are those of a list's members, by list.
	paths map[string][]string
}

type named struct{ lane, member string }

// Membership returns one of no members yet.
func (f *File) Membership() *Membership {
	s := &Membership{file: f, paths: map[string][]string{}}
	s.clear()
	return s
}

func (s *Membership) clear() {
	s.in, s.named, s.single, s.patterns, s.ports = map[string][]*intent.Member{}, map[named]bool{}, map[netip.Addr][]claim{}, 0, 0
}

// With is WithMembers. Members that it was called with the last time, by their address,
// are taken to be as they were. The lists are not to be changed.
func (s *Membership) With(members map[string][]*intent.Member) (*intent.Intent, error) {
	if !s.change(members) {
		all := make(map[string][]intent.Member, len(members))
		for lane, list := range members {
			for _, m := range list {
				all[lane] = append(all[lane], *m)
			}
		}
		return s.file.WithMembers(all)
	}
	in := *s.file.Intent
	in.Lanes = slices.Clone(in.Lanes)
	for i := range in.Lanes {
		l := &in.Lanes[i]
		of := members[l.Name]
		if l.Members = nil; len(of) == 0 {
			continue
		}
		paths := s.pathsOf(l.Path+"."+listName, len(of))
		l.Members = make([]intent.Member, len(of))
		for j, m := range of {
			l.Members[j] = *m
			l.Members[j].Path = paths[j]
		}
	}
	return &in, nil
}

// pathsOf are the paths of so many members of a list.
func (s *Membership) pathsOf(list string, n int) []string {
	paths := s.paths[list]
	for len(paths) < n {
		paths = append(paths, strictyaml.Index(list, len(paths)))
	}
	s.paths[list] = paths
	return paths
}

// change has these members be there if they are known to be right beside each other,
// otherwise none, and reports which.
func (s *Membership) change(members map[string][]*intent.Member) bool {
	if s.add(members) {
		return true
	}
	s.clear()
	return false
}

func (s *Membership) add(members map[string][]*intent.Member) bool {
	var came []claim
	total := 0
	for i := range s.file.Intent.Lanes {
		l := &s.file.Intent.Lanes[i]
		if _, given := s.file.at[l.Path+"."+listName]; !given || l.Mode != intent.Shared {
			return false // its members are the file's; or it has to have one
		}
		now := members[l.Name]
		total += len(now)
		_, gone, new := lists.Middle(s.in[l.Name], now)
		for _, m := range gone {
			s.remove(claim{lane: l, member: m})
		}
		for _, m := range new {
			came = append(came, claim{lane: l, member: m})
		}
		s.in[l.Name] = now
	}
	for _, c := range came {
		if !s.addOne(c) {
			return false
		}
	}
	return total <= maxMembers && s.patterns <= maxPatterns && s.ports <= maxPorts
}

func (s *Membership) remove(c claim) {
	delete(s.named, named{c.lane.Name, c.member.Name})
	s.patterns -= c.member.Patterns()
	s.ports -= portsOf(c.member)
	for _, p := range c.member.Addrs {
		left := slices.DeleteFunc(s.single[p.Addr()], func(o claim) bool { return o.member == c.member })
		if s.single[p.Addr()] = left; len(left) == 0 {
			delete(s.single, p.Addr())
		}
	}
}

// addOne adds a member, unless it is more than what is compared here, or not known to be
// right.
func (s *Membership) addOne(c claim) bool {
	m := c.member
	if m.Cgroup != "" || hasRange(m.Addrs) || !oneFamily(m.Addrs, m.RemoteAddrs) || s.named[named{c.lane.Name, m.Name}] {
		return false
	}
	for _, p := range m.Addrs {
		for _, o := range s.single[p.Addr()] {
			if _, both := common(o.member, m); both && (o.lane != c.lane || samePattern(o.member, m)) {
				return false
			}
		}
	}
	for _, p := range m.Addrs {
		s.single[p.Addr()] = append(s.single[p.Addr()], c)
	}
	if m.Name != "" {
		s.named[named{c.lane.Name, m.Name}] = true
	}
	s.patterns += m.Patterns()
	s.ports += portsOf(m)
	return true
}

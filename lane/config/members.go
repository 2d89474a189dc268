// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// ParseMembers reads a document that is the list which a lane has as members,
// without those of its checks that need the lane. The error is an Errors.
func ParseMembers(name string, data []byte) ([]intent.Member, error) {
	r := newReader(name, strictyaml.Positions{})
	var lane intent.Lane
	if root, ok := r.Document(data, membersWant); ok {
		r.membersOf(root, &lane)
	}
	if errs := r.Errors(); len(errs) > 0 {
		return nil, errs
	}
	return lane.Members, nil
}

// WithMembers returns what the file asks for with these members, by lane, in the
// place of the lists that it gives, checked as ParseFile checks: for who changes
// a few members of many, and would read all of them again. Lanes without a list
// in the file keep what they are. The members' paths are set; what else is not
// copied is shared with the file and is not to be changed. The error is an
// Errors, without the positions of members.
func (f *File) WithMembers(members map[string][]intent.Member) (*intent.Intent, error) {
	r := newReader(f.Name, f.at)
	r.in = *f.Intent
	r.in.Lanes = slices.Clone(f.Intent.Lanes)
	for i := range r.in.Lanes {
		l := &r.in.Lanes[i]
		list := l.Path + "." + listName
		if !r.Given(list) {
			continue
		}
		l.Members = slices.Clone(members[l.Name])
		r.count(list, len(l.Members))
		named := map[string]bool{}
		for j := range l.Members {
			m := &l.Members[j]
			m.Path = strictyaml.Index(list, j)
			r.countPorts(m)
			if m.Name == "" {
				continue
			}
			if named[m.Name] {
				r.Failf(m.Path+".name", "a second member of the name %s", m.Name)
			}
			named[m.Name] = true
		}
	}
	r.check()
	if errs := r.Errors(); len(errs) > 0 {
		return nil, errs
	}
	return &r.in, nil
}

// newReader returns a reader of a file of which these positions are known.
func newReader(name string, at strictyaml.Positions) *reader {
	return &reader{Reader: strictyaml.Resume(name, at), unsure: map[string]bool{}, empty: map[string]bool{}}
}

// count takes note of a list of n members, and reports whether the file may have
// as many.
func (r *reader) count(list string, n int) bool {
	r.empty[list] = n == 0
	if r.members += n; r.members > maxMembers {
		r.Failf(list, "brings the file to %d members, want at most %d", r.members, maxMembers)
		return false
	}
	return true
}

// countPorts takes note of a member's ports, and reports whether the file may have
// as many.
func (r *reader) countPorts(m *intent.Member) bool {
	before := r.ports
	if r.ports += portsOf(m); r.ports > maxPorts && before <= maxPorts {
		r.Failf(m.Path, "brings the file to %d ports, want at most %d", r.ports, maxPorts)
	}
	return r.ports <= maxPorts
}

func portsOf(m *intent.Member) int { return len(m.Ports) + len(m.RemotePorts) }

// membersOf reads a list of members into a lane.
func (r *reader) membersOf(v strictyaml.Value, lane *intent.Lane) {
	n, list := v.Len()
	if !list {
		v.Wrong(membersWant)
		return
	}
	if !r.count(v.Path(), n) {
		return
	}
	named := map[string]int{}
	for _, item := range v.Items() {
		m := intent.Member{Protocol: "tcp", Path: item.Path()}
		if !r.section(item, listedKeys(), memberWant, &target{member: &m}) {
			continue
		}
		if !r.countPorts(&m) {
			return
		}
		if first := named[m.Name]; first > 0 && m.Name != "" {
			r.Failf(item.Path()+".name", "a second member of this name, the first in line %d", first)
		}
		named[m.Name] = r.Line(item.Path())
		lane.Members = append(lane.Members, m)
	}
}

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

func newReader(name string) *reader {
	return &reader{Reader: strictyaml.NewReader(name), unsure: map[string]bool{}, empty: map[string]bool{}}
}

// count records that the member list at path list has n members. It returns false if the file
// then has more than maxMembers.
func (r *reader) count(list string, n int) bool {
	r.empty[list] = n == 0
	if r.members += n; r.members > maxMembers {
		r.Failf(list, "brings the file to %d members, want at most %d", r.members, maxMembers)
		return false
	}
	return true
}

// countPorts adds a member's ports to the file's total. It returns false if the total is then
// above maxPorts.
func (r *reader) countPorts(m *intent.Member) bool {
	before := r.ports
	if r.ports += portsOf(m); r.ports > maxPorts && before <= maxPorts {
		r.Failf(m.Path, "brings the file to %d ports, want at most %d", r.ports, maxPorts)
	}
	return r.ports <= maxPorts
}

func portsOf(m *intent.Member) int { return len(m.Ports) + len(m.RemotePorts) }

// membersOf reads a lane's list of members.
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

// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// A Lane describes an applied lane: what its applications need to know.
type Lane struct {
	Name string `json:"name"`
	// Config is the path of the lanes file.
	Config string `json:"config"`
	// Fitted describes the lane on each of its devices.
	Fitted []plan.FittedLane `json:"fitted"`
	// Named is true if the lanes file gives the lane processors by number. The lane's applications may
	// then run only on these.
	Named bool `json:"named,omitempty"`
	// AppCPUs and AppMems are the processors and NUMA nodes that the lanes file gives the lane's control
	// groups (cgroup-cpus, cgroup-mems). Without AppCPUs, the applications run where Named says.
	AppCPUs []int         `json:"appCPUs,omitempty"`
	AppMems []int         `json:"appMems,omitempty"`
	Members []Member      `json:"members,omitempty"`
	Poller  intent.Poller `json:"poller"`
	// Nodes has the processors of each NUMA node, if the application has one instance per node. A
	// connection then goes only to listeners on the node where it arrives. If the application has one
	// instance in all, Nodes is nil.
	Nodes [][]int `json:"nodes,omitempty"`
	// ByGroup is true if the lane classifies packets by control group.
	ByGroup bool `json:"byGroup,omitempty"`
	// Class is the priority that the classifier cgroup-sockops gives the sockets of a control group
	// (CgroupClass). With other classifiers, it is "".
	Class string `json:"class,omitempty"`
	// Handed is true if XDP redirects the lane's packets to other processors. Its connections
	// then have no NAPI ID.
	Handed bool `json:"handed,omitempty"`
	// NetPrio is the priority that the net_prio controller gives. Keys are the names of the devices.
	NetPrio map[string]string `json:"netPrio,omitempty"`
}

// A Member is a member of the lane, as the lanes file gives it.
type Member struct {
	Name     string `json:"name,omitempty"`
	Cgroup   string `json:"cgroup,omitempty"`
	Protocol string `json:"protocol"`
	// Ports and Addrs match the packets of this member.
	Ports []uint16 `json:"ports,omitempty"`
	Addrs []string `json:"addrs,omitempty"`
	// Aligned is the member's key "aligned" in the lanes file.
	Aligned bool `json:"aligned,omitempty"`
}

// CPUs returns the lane's processors on all of its devices, ascending.
func (l Lane) CPUs() []int {
	var cpus []int
	for _, f := range l.Fitted {
		cpus = append(cpus, f.CPUs...)
	}
	slices.Sort(cpus)
	return slices.Compact(cpus)
}

// Devices returns the names of the lane's devices, in the order of the plan.
func (l Lane) Devices() []string {
	var names []string
	for _, f := range l.Fitted {
		names = append(names, f.Device)
	}
	return names
}

// Queues returns the number of the lane's queues on all devices.
func (l Lane) Queues() int {
	n := 0
	for _, f := range l.Fitted {
		n += len(f.Queues)
	}
	return n
}

// Groups returns the control groups that the lanes file gives for the lane's members.
func (l Lane) Groups() []string {
	var gs []string
	for _, m := range l.Members {
		if m.Cgroup != "" && !slices.Contains(gs, m.Cgroup) {
			gs = append(gs, m.Cgroup)
		}
	}
	return gs
}

// Ports returns the ports of the members with the given protocol, ascending.
func (l Lane) Ports(protocol string) []uint16 {
	var ps []uint16
	for _, m := range l.Members {
		if m.Protocol == protocol {
			ps = append(ps, m.Ports...)
		}
	}
	slices.Sort(ps)
	return slices.Compact(ps)
}

// Find returns the applied lane called name. journals are the journals of this boot and network
// namespace. file is "" or the absolute path of a lanes file; Find then considers only lanes of
// that file.
func Find(journals []*journal.Journal, name, file string) (Lane, error) {
	var found []Lane
	var there []string
	for _, j := range journals {
		h := j.Head()
		if len(j.Records()) == 0 || file != "" && h.Config != file {
			continue
		}
		for _, l := range lanes(j) {
			if l.Name == intent.DefaultLane {
				continue
			}
			there = append(there, fmt.Sprintf("%s (%s)", l.Name, l.Config))
			if l.Name == name {
				found = append(found, l)
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var files []string
		for _, l := range found {
			files = append(files, l.Config)
		}
		return Lane{}, fmt.Errorf("lane %s is applied from %s: give one of these "+
			"files", name, strings.Join(files, " and "))
	case name == intent.DefaultLane:
		return Lane{}, fmt.Errorf("lane %s is everything that no lane matches: applications outside of "+
			"lanes are in it already", name)
	case len(there) > 0:
		return Lane{}, fmt.Errorf("no lane %q is applied here: there is %s", name, strings.Join(there, ", "))
	case file != "":
		return Lane{}, fmt.Errorf("no lane of %s is applied here: niclane apply %s first", file, file)
	}
	return Lane{}, fmt.Errorf("no lane %q is applied here, nor any other: niclane apply first", name)
}

// lanes returns the lanes in a journal's plan.
func lanes(j *journal.Journal) []Lane {
	h := j.Head()
	var out []Lane
	for _, f := range h.Plan.Lanes {
		i := slices.IndexFunc(out, func(l Lane) bool { return l.Name == f.Name })
		if i < 0 {
			i, out = len(out), append(out, Lane{Name: f.Name, Config: h.Config})
		}
		out[i].Fitted = append(out[i].Fitted, f)
	}
	asked := map[string]*intent.Lane{}
	if f, err := config.ParseFile(h.Config, []byte(h.ConfigText)); err == nil {
		for i := range f.Intent.Lanes {
			asked[f.Intent.Lanes[i].Name] = &f.Intent.Lanes[i]
		}
	}
	for i := range out {
		l := &out[i]
		if in := asked[l.Name]; in != nil {
			l.ask(in)
		}
		for _, r := range j.Records() {
			l.record(r)
		}
	}
	return out
}

// ask copies from the lanes file: the members, the poller, and whether the file names processors.
func (l *Lane) ask(in *intent.Lane) {
	l.Named, l.Poller = len(in.CPUs) > 0, in.Poller
	for _, m := range in.Members {
		l.AppCPUs, l.AppMems = append(l.AppCPUs, m.CgroupCPUs...), append(l.AppMems, m.CgroupMems...)
		x := Member{Name: m.Name, Cgroup: m.Cgroup, Protocol: m.Protocol, Ports: m.Ports, Aligned: m.Aligned}
		for _, a := range m.Addrs {
			x.Addrs = append(x.Addrs, a.String())
		}
		l.Members = append(l.Members, x)
	}
	if slices.ContainsFunc(in.Members, func(m intent.Member) bool { return len(m.CgroupCPUs) == 0 }) {
		l.AppCPUs = nil // an application of that member runs on the lane's processors
	}
	for _, ids := range []*[]int{&l.AppCPUs, &l.AppMems} {
		slices.Sort(*ids)
		*ids = slices.Compact(*ids)
	}
}

// record derives Handed, ByGroup, Class and NetPrio from one journal record.
func (l *Lane) record(r journal.Record) {
	if rest, ok := strings.CutPrefix(r.Cause, "lanes."+l.Name); !ok || rest != "" && rest[0] != '.' {
		return
	}
	switch o := r.Last.(type) {
	case device.XDPEntry:
		l.Handed = true
	case device.CgroupClass:
		l.ByGroup, l.Class = true, o.Priority
	case device.CgroupPriority:
		if l.NetPrio == nil {
			l.NetPrio = map[string]string{}
		}
		l.ByGroup, l.NetPrio[o.Dev] = true, o.Priority
	}
}

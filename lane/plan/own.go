// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// Threads that poll a lane's queues pay only if they have processors of their own. On the
// processor of the application, each batch of packets costs two context switches more than in
// softirq: with one processor for both, memcached answered 0.72 times the requests
// (docs/results/2026-11-mechanisms.md, "On a quiet link").

// asksThread says how a file asks for polling threads.
const asksThread = "poller: thread; or processors of the lane's own for its queues"

// asksThreads reports whether the file asks for polling threads for the lane.
func asksThreads(l *intent.Lane) bool {
	return l.Poller.Kind == intent.PollerThread || l.Poller.Kind == intent.PollerAuto && l.Poller.Count > 0
}

// appCPUs returns the processors to which control groups confine the lane's applications. all is
// true if an application may run on every processor, as far as the file and the groups say.
func (f *fit) appCPUs(l *intent.Lane) (cpus []int, all bool) {
	for i := range l.Members {
		m := &l.Members[i]
		if m.Cgroup == "" {
			return nil, true
		}
		if len(m.CgroupCPUs) > 0 {
			cpus = append(cpus, m.CgroupCPUs...)
			continue
		}
		// A group that plan confines has the processors that the lane names. This is about lanes that
		// name none, so the group's own setting counts: the one before niclane.
		file, ok := f.present[device.File{Path: f.st.Cgroups.CpusetDir(m.Cgroup) + "/cpuset.cpus"}.Key()].(device.File)
		if !ok {
			return nil, true
		}
		file = f.base(file).(device.File)
		in, err := device.ParseCPUList(file.Value)
		if err != nil || len(in) == 0 {
			return nil, true // an empty list in version 2 of control groups means the parent's processors
		}
		cpus = append(cpus, in...)
	}
	return cpus, len(l.Members) == 0
}

// apart reports whether all members of the lane have processors apart from the lane's.
func (p *deviceLane) apart() bool {
	return len(p.Members) > 0 && !slices.ContainsFunc(p.Members,
		func(m intent.Member) bool { return len(m.CgroupCPUs) == 0 })
}

// mayOwn returns the processors of pool that the lane's application and the default lane leave
// alone. If there are none, why has the reason.
func (f *fit) mayOwn(l *deviceLane, pool []int) (own []int, why string) {
	apps, all := f.appCPUs(l.Lane)
	switch {
	case len(l.CPUs) > 0 && !l.apart():
		return nil, fmt.Sprintf("the processors that its cpus names (%s) run its application too",
			device.FormatCPUList(l.CPUs))
	case all:
		return nil, "its application may run on every processor (no cgroup with a cpuset confines it)"
	case len(f.in.Default.CPUs) == 0:
		return nil, "the default lane may run on every processor (globals names no cpus)"
	}
	if own = without(without(pool, apps), f.in.Default.CPUs); len(own) == 0 {
		return nil, fmt.Sprintf("its application (%s) and the default lane (%s) have all processors",
			device.FormatCPUList(apps), device.FormatCPUList(f.in.Default.CPUs))
	}
	return own, ""
}

// sharing returns the reason why the processors of the lane's queues are not the lane's own, ""
// if they are: no application of the lane and no other lane uses them. lanes are all lanes.
func (f *fit) sharing(l *deviceLane, lanes []*deviceLane) string {
	if !f.reserves() {
		return "all lanes share the receive queues"
	}
	own, why := f.mayOwn(l, f.st.OnlineCPUs())
	if why != "" {
		return why
	}
	for _, other := range lanes {
		if other == l || other.isDefault {
			continue // mayOwn has the default lane's
		}
		for _, c := range l.cpus {
			if slices.Contains(other.cpus, c) {
				return fmt.Sprintf("processor %d is lane %s's too", c, other.Name)
			}
		}
	}
	if less := without(l.cpus, own); len(less) > 0 {
		return fmt.Sprintf("there are too few processors: its application or the default lane uses %s too",
			device.FormatCPUList(less))
	}
	return ""
}

// settlePoller decides whether lanes get polling threads that no lane asks for. It needs the
// lanes' processors, which are chosen after the other parts. It replaces the poller in choices.
func (f *fit) settlePoller(choices []Choice, lanes []*deviceLane, asked []string, without map[string]string) {
	force := f.in.Group.Force[string(device.PartPoller)]
	why := ""
	for _, l := range lanes[min(1, len(lanes)):] {
		l.sharing = f.sharing(l, lanes)
		if l.Poller.Kind != intent.PollerAuto || asksThreads(l.Lane) {
			continue
		}
		switch {
		case l.sharing == "":
			asked = append(asked, ByNAPIThread)
		case why != "":
		case !f.reserves():
			why = l.sharing
		default:
			why = fmt.Sprintf("lane %s has no processor of its own for its queues: %s (poller: thread insists)",
				l.Name, l.sharing)
		}
	}
	if why != "" && !slices.Contains(asked, ByNAPIThread) && without[ByNAPIThread] == "" {
		without[ByNAPIThread] = why
	}
	chosen := map[device.Part]string{}
	for i := range choices {
		c := &choices[i]
		if c.Part == device.PartPoller {
			*c = choosePart(f.st, f.dev, c.Part, candidates(c.Part), force, chosen, without, asked)
			f.choice[c.Part] = *c
		}
		chosen[c.Part] = c.Mechanism
	}
}

// noteSharing adds a note about lanes whose threads share processors, because the file asks for
// threads, and about lanes that have no threads although other lanes got them.
func (f *fit) noteSharing(lanes []*deviceLane) {
	for _, l := range lanes[min(1, len(lanes)):] {
		switch kind := f.kind(l); {
		case l.sharing == "" || !f.reserves():
		case kind == intent.PollerThread:
			f.notef("lane %s: its polling threads share processors %s: %s; memcached answered 0.72 times the requests "+
				"when it shared its only processor with a thread (docs/results/2026-11-mechanisms.md)", l.Name,
				device.FormatCPUList(l.cpus), l.sharing)
		case kind == intent.PollerAuto && l.Poller.Kind == intent.PollerAuto && !f.uses(device.PartPoller, BySoftirq):
			if f.threadsAll() {
				f.notef("lane %s: kernel threads poll it too, on any processor: %s has threads for all NAPIs or for "+
					"none", l.Name, f.dev.Name)
				continue
			}
			f.notef("lane %s is polled in softirq: %s", l.Name, l.sharing)
		}
	}
}

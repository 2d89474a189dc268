// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// wantCpusets confines each member's processes to its lane's processors, or to processors of their
// own, and their memory to the NUMA nodes of these. It does so only if the file names processors:
// an automatic choice has only as many as the queues need, too few for the application. Processors
// of busy pollers are left out.
func (f *fit) wantCpusets(lanes []*deviceLane) {
	if !f.uses(device.PartProcessors, ByCpuset) {
		return
	}
	for _, l := range lanes {
		if l.runsMembers() && len(l.CPUs) > 0 && len(f.laneCPUs(l)) == 0 {
			f.notef("lane %s: busy pollers have all of its processors (%s): its members stay where they are", l.Name,
				device.FormatCPUList(l.cpus))
		}
		var done []string
		for i := range l.Members {
			m := &l.Members[i]
			if m.Cgroup == "" || slices.Contains(done, m.Cgroup) {
				continue
			}
			done = append(done, m.Cgroup)
			f.wantCpuset(l, m)
		}
	}
}

// wantCpuset confines one member's control group.
func (f *fit) wantCpuset(l *deviceLane, m *intent.Member) {
	cpus, where, key := f.memberCPUs(l, m), "lane "+l.Name+"'s processors", lanePath(l.Lane, "cpus")
	if len(m.CgroupCPUs) > 0 {
		where, key = "processors apart from the lane's", m.Path+".cgroup-cpus"
	}
	set := func(name string, ids []int, cause, reason string) {
		if len(ids) > 0 {
			f.want(device.File{Path: f.st.Cgroups.CpusetDir(m.Cgroup) + "/" + name, Format: device.FileCPUList,
				Value: device.FormatCPUList(ids)}, device.PartProcessors, cause, reason)
		}
	}
	set("cpuset.cpus", cpus, key, fmt.Sprintf("processes of %s on %s", m.Cgroup, where))
	if len(m.CgroupMems) > 0 {
		set("cpuset.mems", m.CgroupMems, m.Path+".cgroup-mems", "memory of "+m.Cgroup+" on these NUMA nodes")
		return
	}
	set("cpuset.mems", nodesOf(f.st, cpus), lanePath(l.Lane, "numa"),
		fmt.Sprintf("memory of %s on the NUMA nodes of these processors", m.Cgroup))
}

// memberCPUs returns the processors to which a member's control group is confined. It returns none if
// the file names none, or if busy pollers have all of them.
func (f *fit) memberCPUs(l *deviceLane, m *intent.Member) []int {
	if len(m.CgroupCPUs) > 0 {
		return m.CgroupCPUs
	}
	return f.laneCPUs(l)
}

// laneCPUs returns the lane's processors that the file names and that no busy poller has.
func (f *fit) laneCPUs(l *deviceLane) []int {
	if len(l.CPUs) == 0 {
		return nil
	}
	return without(l.cpus, f.spun(l))
}

// without returns the elements of a that are not in b.
func without(a, b []int) []int {
	return slices.DeleteFunc(slices.Clone(a), func(x int) bool { return slices.Contains(b, x) })
}

// wantGlobals makes the settings of the host and of the whole device.
func (f *fit) wantGlobals() {
	g := f.in.Group
	f.wantSysctl("/proc/sys/net/core/busy_poll", "globals.busypoll", g.BusyPoll)
	f.wantSysctl("/proc/sys/net/core/busy_read", "globals.busyread", g.BusyRead)
	if g.ARPFilter != nil && *g.ARPFilter {
		ignore, announce, notify := 1, 2, 1
		dir := "/proc/sys/net/ipv4/conf/" + f.dev.Name + "/"
		f.wantSysctl(dir+"arp_ignore", "globals.arpfilter", &ignore)
		f.wantSysctl(dir+"arp_announce", "globals.arpfilter", &announce)
		f.wantSysctl(dir+"arp_notify", "globals.arpfilter", &notify)
	}
	f.wantOptimize(g.Optimize)
	r := f.in.Default.Rings
	if r.Rx == nil && r.Tx == nil {
		return
	}
	if f.dev.Ring == nil {
		f.failf("globals.rxring", "%s has no ring sizes to set", f.dev.Name)
		return
	}
	ring := f.base(*f.dev.Ring).(device.Ring)
	set(&ring.RX, r.Rx)
	set(&ring.TX, r.Tx)
	if most := f.dev.MaxRing; most != nil && (ring.RX > most.RX || ring.TX > most.TX) {
		key := "globals.rxring"
		if ring.RX <= most.RX {
			key = "globals.txring"
		}
		f.failf(key, "rings of %d/%d, %s takes at most %d/%d", ring.RX, ring.TX, f.dev.Name, most.RX, most.TX)
		return
	}
	f.wants = append(f.wants, want{
		Object: ring, part: device.PartQueueSet, cause: "globals.rxring", disruptive: true,
		reason: "descriptor ring sizes",
	})
}

func (f *fit) wantSysctl(path, cause string, v *int) {
	if v == nil {
		return
	}
	if _, ok := f.st.Files[path]; !ok {
		f.failf(cause, "%s does not exist here (host-wide settings are absent in network namespaces)", path)
		return
	}
	f.want(device.File{Path: path, Format: device.FileText, Value: strconv.Itoa(*v)}, device.PartPoller, cause,
		"asked for")
}

// wantOptimize sets the private flag of Intel's own driver.
func (f *fit) wantOptimize(on *bool) {
	if on == nil {
		return
	}
	name := f.dev.InspectFlag()
	if name == "" {
		f.failf("globals.optimize", "%s (driver %s) has no private flag channel-pkt-inspect-optimize, which only "+
			"Intel's own ice driver has: leave it out", f.dev.Name, f.dev.Driver)
		return
	}
	f.want(device.PrivFlag{Dev: f.dev.Name, Name: name, On: *on}, device.PartPoller, "globals.optimize", "asked for")
}

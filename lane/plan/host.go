// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/niclane/niclane/lane/device"
)

// wantCpusets confines each member's processes to its lane's processors, and their memory to the
// NUMA nodes of these. It does so only if the file names processors: an automatic choice has only
// as many as the queues need, too few for the application. Processors of busy pollers are left
// out.
func (f *fit) wantCpusets(lanes []*deviceLane) {
	if !f.uses(device.PartProcessors, ByCpuset) {
		return
	}
	for _, l := range lanes {
		cpus := f.memberCPUs(l)
		if len(cpus) == 0 {
			if len(l.CPUs) == 0 || !l.runsMembers() {
				continue
			}
			f.notef("lane %s: busy pollers have all of its processors (%s): its members stay where they are", l.Name,
				device.FormatCPUList(l.cpus))
			continue
		}
		var done []string
		for i := range l.Members {
			m := &l.Members[i]
			if m.Cgroup == "" || slices.Contains(done, m.Cgroup) {
				continue
			}
			done = append(done, m.Cgroup)
			dir := f.st.Cgroups.CpusetDir(m.Cgroup)
			f.want(device.File{Path: dir + "/cpuset.cpus", Format: device.FileCPUList,
				Value: device.FormatCPUList(cpus)},
				device.PartProcessors, lanePath(l.Lane, "cpus"),
				fmt.Sprintf("processes of %s on lane %s's processors", m.Cgroup, l.Name))
			f.want(device.File{Path: dir + "/cpuset.mems", Format: device.FileCPUList,
				Value: device.FormatCPUList(nodesOf(f.st, cpus))},
				device.PartProcessors, lanePath(l.Lane, "numa"),
				fmt.Sprintf("memory of %s on the NUMA nodes of these processors", m.Cgroup))
		}
	}
}

// memberCPUs returns the processors to which a lane's members are confined. It returns none if
// the file names none, or if busy pollers have all of them.
func (f *fit) memberCPUs(l *deviceLane) []int {
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

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// This file makes lanes on a device that cannot steer packets. Software distinguishes the
// packets, and each lane has processors in place of queues.

// IngressProgram is the name of the XDP program in package internal/kernel/bpf.
const IngressProgram = "niclane_ingress"

// cpuQueueSize is the number of packets that can wait for a processor of a lane, as in the
// kernel's samples (samples/bpf/xdp_redirect_cpu). The kernel takes eight packets at a time from
// the queue (CPU_MAP_BULK_SIZE). If the queue is full, it drops packets, as a card does with a
// full ring.
const cpuQueueSize = 2048

// reserves reports whether lanes have their own receive queues.
func (f *fit) reserves() bool {
	switch f.choice[device.PartQueueSet].Mechanism {
	case ByCpumap, ByCpumapGeneric, ByRPS, ByShared:
		return false
	}
	return true
}

// redirects reports whether an XDP program moves the lanes' packets to processors.
func (f *fit) redirects() bool {
	return f.uses(device.PartQueueSet, ByCpumap) || f.uses(device.PartQueueSet, ByCpumapGeneric)
}

// cpumap returns a function that tests whether XDP in the given mode ("native" or "generic") and
// a cpumap can make lanes.
func cpumap(mode string) func(*device.State, *device.Device) (bool, string) {
	return func(st *device.State, d *device.Device) (bool, string) {
		caps, good := []device.Capability{device.CapCPUMap},
			"by flow in the stack's XDP hook, to the lane's own processors"
		if mode == "native" {
			caps, good = append(caps, device.CapXDPNative),
				"by flow in the driver's XDP hook, to the lane's own processors"
		}
		if ok, why := needs("", caps...)(st, d); !ok {
			return false, why
		}
		if why := headless(d); why != "" {
			return false, why
		}
		x, attached := d.XDP()
		if attached && x.Program != IngressProgram {
			return false, fmt.Sprintf("the device's one XDP slot holds %s (%s), which niclane does not replace",
				nameOr(x.Program, "a program without a name"), x.Mode)
		}
		if mode == "native" && !(attached && x.Mode == mode) { // if it is attached already, the driver has accepted it
			if why := noNativeXDP(st, d); why != "" {
				return false, why
			}
		}
		if n := len(st.OnlineCPUs()); n < 2 {
			return false, "one processor is online: moving packets to it from itself only costs time"
		}
		if q, ok := device.FindQuirk(device.QuirkPartialChecksums, d.Driver, st.Kernel.Release); ok &&
			mode == "native" {
			return false, fmt.Sprintf("%s hands over packets whose checksum the other end left to hardware, and "+
				"native XDP loses that mark (%s)", d.Driver, q.Source)
		}
		return true, good
	}
}

// onePage is the largest MTU for which a packet fits into one page of 4 KiB: 4096, minus the
// headroom of XDP (XDP_PACKET_HEADROOM), the tailroom of the stack (skb_shared_info) and the
// Ethernet header.
const onePage = 4096 - 256 - 320 - 14

// noNativeXDP returns the reason why the driver would refuse native XDP with its present
// settings, "" if no reason is known.
func noNativeXDP(st *device.State, d *device.Device) string {
	quirk := func(kind device.QuirkKind) (device.Quirk, bool) {
		return device.FindQuirk(kind, d.Driver, st.Kernel.Release)
	}
	if frags := d.Capabilities.Find(device.CapXDPFrags); frags.Answer != device.Yes {
		most, from := 0, ""
		if q, ok := quirk(device.QuirkXDPMTU); ok {
			most, from = q.Value, " ("+q.Source+")"
		} else if frags.Answer == device.No && st.Kernel.Arch == "x86_64" {
			most, from = onePage, ", for packets in one buffer ("+frags.Why+")"
		}
		if most > 0 && d.MTU > most {
			return fmt.Sprintf("%s takes native XDP up to an MTU of %d, and the MTU is "+
				"%d%s", d.Driver, most, d.MTU, from)
		}
	}
	if d.Channels == nil || d.MaxChannels == nil {
		return ""
	}
	used, most := d.Channels.TX+d.Channels.Combined, max(d.MaxChannels.TX, d.MaxChannels.Combined)
	if q, ok := quirk(device.QuirkXDPHalf); ok && 2*used > most {
		return fmt.Sprintf("%s takes native XDP only if at most half of its queues (%d of %d) are in use, and "+
			"%d are (%s)",
			d.Driver, most/2, most, used, q.Source)
	}
	if q, ok := quirk(device.QuirkXDPCombined); ok && d.Channels.RX+d.Channels.TX > 0 {
		return fmt.Sprintf("%s takes native XDP only on combined channels (%s)", d.Driver, q.Source)
	}
	return ""
}

func nameOr(name, none string) string {
	if name == "" {
		return none
	}
	return name
}

// rps tests whether receive packet steering can move receive work from the lanes' processors to
// other processors.
func rps(st *device.State, d *device.Device) (bool, string) {
	if ok, why := needs("", device.CapRPS)(st, d); !ok {
		return false, why
	}
	if len(st.OnlineCPUs()) < 2 {
		return false, "one processor is online: there is no other to move receive work to"
	}
	return true, "receive work of all traffic on processors that no lane has; a lane's packets wait among the others"
}

// useless returns the reason why moving packets between processors gains nothing for these lanes,
// "" if it may gain something. In the lab with two processors, a cpumap whose processor also
// receives made P50 2.0 times that of an idle link (1.55 to 2.24); without a cpumap it was 1.3
// times (1.09 to 1.52); docs/results/2026-11-mechanisms.md.
func (f *fit) useless(lanes []*deviceLane) string {
	if !f.redirects() && !f.uses(device.PartQueueSet, ByRPS) || len(lanes) < 2 {
		return ""
	}
	if len(f.laneless(lanes)) > 0 {
		return ""
	}
	return fmt.Sprintf("the lanes have all processors of the default lane (%s): moving packets between them only "+
		"costs time", device.FormatCPUList(lanes[0].cpus))
}

// laneless returns the default lane's processors that belong to no other lane.
func (f *fit) laneless(lanes []*deviceLane) []int {
	return slices.DeleteFunc(slices.Clone(lanes[0].cpus), func(id int) bool {
		return slices.ContainsFunc(lanes[1:], func(l *deviceLane) bool { return slices.Contains(l.cpus, id) })
	})
}

// wantRPS moves the receive work of every queue to processors that belong to no lane.
func (f *fit) wantRPS(lanes []*deviceLane) {
	if !f.uses(device.PartQueueSet, ByRPS) {
		return
	}
	free := f.laneless(lanes)
	if len(free) == 0 {
		f.failf("globals.force.queue-set",
			"rps on %s: the lanes have all processors of the default lane (%s): none is left for receive work",
			f.dev.Name, device.FormatCPUList(lanes[0].cpus))
		return
	}
	for q := range f.dev.RxQueues {
		f.want(device.File{
			Path:   fmt.Sprintf("/sys/class/net/%s/queues/rx-%d/rps_cpus", f.dev.Name, q),
			Format: device.FileCPUMask, Value: device.FormatMask(free),
		}, device.PartQueueSet, "lanes", fmt.Sprintf("receive work of queue %d on processors %s, which "+
			"no lane has", q, device.FormatCPUList(free)))
	}
}

// wantNoRPS turns off receive packet steering (RPS) and flow steering (RFS) for the lanes'
// packets. RPS would move the packets to other processors. It does so even after a cpumap,
// because the stack takes them for packets of the device (net/core/dev.c: get_rps_cpu). RFS moves
// packets to the application's processor, even to one that is not in rps_cpus.
func (f *fit) wantNoRPS(lanes []*deviceLane) {
	names, why := []string{"rps_cpus", "rps_flow_cnt"}, "its packets stay on the processor that polls it"
	var queues []int
	switch {
	case f.uses(device.PartQueueSet, ByShared) || len(lanes) < 2:
		return
	case f.reserves():
		for _, l := range lanes[1:] {
			queues = append(queues, l.queues...)
		}
	case f.redirects():
		queues, why = span(0, f.dev.RxQueues), "a lane's packets stay on the processor that they were handed to"
	default:
		queues, names, why = span(0, f.dev.RxQueues), names[1:],
			"receive work does not follow an application to a lane's processors"
	}
	for _, q := range queues {
		for _, name := range names {
			file, there := f.st.Files[fmt.Sprintf("/sys/class/net/%s/queues/rx-%d/%s", f.dev.Name, q, name)]
			if file.Value = "0"; there {
				f.want(file, device.PartQueueSet, "lanes", fmt.Sprintf("receive queue %d: %s", q, why))
			}
		}
	}
}

// wantCPUs attaches the XDP program and makes the packet queues of the lanes' processors. It
// steers no packets: without an entry that matches, the program passes a packet on.
func (f *fit) wantCPUs(lanes []*deviceLane) {
	if !f.redirects() {
		return
	}
	mode := "native"
	if f.uses(device.PartQueueSet, ByCpumapGeneric) {
		mode = "generic"
	}
	f.wantTags(mode, lanes)
	if mode == "native" {
		f.warnOfRemoval()
	}
	var whole string
	if mode == "generic" {
		whole = "generic XDP takes packets as they came from the wire: the kernel turns this feature off with " +
			"the program, and not on again"
	} else if q, ok := device.FindQuirk(device.QuirkXDPNoLRO, f.dev.Driver, f.st.Kernel.Release); ok {
		whole = fmt.Sprintf("%s takes native XDP only without this feature (%s)", f.dev.Driver, q.Source)
	}
	if whole != "" {
		for _, name := range []string{"rx-gro-hw", "rx-lro"} {
			f.wantOff(name, whole)
		}
	}
	f.wants = append(f.wants, want{
		Object: device.XDP{Dev: f.dev.Name, Mode: mode, Program: IngressProgram},
		part:   device.PartQueueSet, cause: "lanes", disruptive: mode == "native",
		reason: "looks each arriving packet's flow up in a map and hands it to its lane's processors; all else passes",
	})
	f.wantTunnels(device.XDP{Dev: f.dev.Name}.Key(), device.PartSteering)
	threads := map[int]*deviceLane{} // for each processor, the lane with the best rank
	for _, l := range lanes {
		for _, cpu := range l.cpus {
			if best := threads[cpu]; best == nil || rank(l) < rank(best) {
				threads[cpu] = l
			}
		}
	}
	var cpus []int
	for cpu := range threads {
		cpus = append(cpus, cpu)
	}
	slices.Sort(cpus)
	for _, cpu := range cpus {
		l := threads[cpu]
		f.want(device.CPUQueue{Dev: f.dev.Name, CPU: cpu, Size: cpuQueueSize}, device.PartQueueSet,
			lanePath(l.Lane, "cpus"),
			fmt.Sprintf("a queue to processor %d, emptied by a kernel thread there", cpu))
	}
	for _, cpu := range cpus {
		l := threads[cpu]
		t := device.CPUThread{Dev: f.dev.Name, CPU: cpu}
		var how string
		t.Policy, t.Priority, t.Nice, how = l.scheduling()
		f.want(t, device.PartPoller, lanePath(l.Lane, "poller"),
			fmt.Sprintf("its thread on processor %d: %s", cpu, how))
	}
	for _, l := range lanes {
		f.want(device.CPULane{Dev: f.dev.Name, Lane: l.number, CPUs: l.cpus}, device.PartQueueSet,
			lanePath(l.Lane, "queues"),
			fmt.Sprintf("lane %s has processors %s", l.Name, device.FormatCPUList(l.cpus)))
	}
}

// warnOfRemoval adds a note about cards on which native XDP makes removal hang: what the user
// must do before the card is unplugged or its driver unloaded.
func (f *fit) warnOfRemoval() {
	d := f.dev
	_, hangs := device.FindQuirk(device.QuirkXDPHangsRemoval, d.Driver, f.st.Kernel.Release)
	// The driver takes one spare queue for each processor. If there are not enough, it takes none.
	if !hangs || d.Channels == nil || d.MaxChannels == nil ||
		d.Channels.Combined+len(f.st.CPUs) > d.MaxChannels.Combined {
		return
	}
	f.notef("%s has spare queues (%d of %d in use), and with XDP on it, Linux never finishes its removal: "+
		"roll back before the card is unplugged or its driver unloaded, or use all queues (ethtool -L %s combined %d)",
		d.Driver, d.Channels.Combined, d.MaxChannels.Combined, d.Name, d.MaxChannels.Combined)
}

// wantTags turns off VLAN stripping if the XDP program needs the tags. It also does so for native
// XDP, because a tag that the card has stripped would be lost.
func (f *fit) wantTags(mode string, lanes []*deviceLane) {
	const feature = "rx-vlan-hw-parse"
	now := f.dev.Features[feature]
	if !f.wasOn(feature) || mode == "generic" && len(f.in.Group.VLANs) == 0 {
		return
	}
	if now.Fixed {
		if len(f.in.Group.VLANs) > 0 {
			f.failf("globals.vlans", "%s strips VLAN tags, which cannot be turned off: XDP does not see "+
				"them", f.dev.Name)
		} else if mode == "native" {
			f.notef("it strips VLAN tags, which cannot be turned off: tagged packets of a lane lose their tag")
		}
		return
	}
	f.wantOff(feature, "VLAN tags stay in the packets, where XDP sees them")
}

// wasOn reports whether a feature was on before niclane.
func (f *fit) wasOn(feature string) bool {
	now, ok := f.dev.Features[feature]
	return ok && f.base(device.Feature{Dev: f.dev.Name, Name: feature, On: now.On}).(device.Feature).On
}

// wantOff turns off a feature that was on before niclane, if it can be changed.
func (f *fit) wantOff(feature, why string) {
	if f.wasOn(feature) && !f.dev.Features[feature].Fixed {
		f.want(device.Feature{Dev: f.dev.Name, Name: feature, On: false}, device.PartQueueSet, "lanes", why)
	}
}

// wantXDPEntries steers the members' packets to their lanes. It is called last.
func (f *fit) wantXDPEntries(lanes []*deviceLane) {
	if !f.redirects() {
		return
	}
	for _, l := range lanes {
		reason := "packets of lane " + l.Name + " to its processors"
		for i := range l.Members {
			m := &l.Members[i]
			for _, match := range f.matches(m) {
				f.want(device.XDPEntry{Dev: f.dev.Name, Match: match, Lane: l.number}, device.PartSteering, m.Path,
					reason)
			}
		}
	}
}

// checkSoftware refuses settings that need the lane's own receive queues.
func (f *fit) checkSoftware(lanes []*deviceLane) {
	queueSet := f.choice[device.PartQueueSet]
	if queueSet.Mechanism == "" || len(lanes) < 2 {
		return
	}
	if f.reserves() {
		return
	}
	for _, l := range lanes[1:] {
		switch l.Poller.Kind {
		case intent.PollerBusy, intent.PollerThread:
			if !f.redirects() || l.Poller.Kind == intent.PollerBusy {
				f.failf(lanePath(l.Lane, "poller"), "%s on %s: all lanes share its receive queues (queue-set is %s)",
					l.Poller.Kind, f.dev.Name, queueSet.Mechanism)
			}
		}
		for i := range l.Members {
			if l.Members[i].Aligned {
				f.failf(l.Members[i].Path+".aligned", "on, and %s has no receive queues for a lane (queue-set is "+
					"%s): the application places its threads by NAPI ID, and no NAPI belongs to the lane",
					f.dev.Name, queueSet.Mechanism)
			}
		}
		if n := len(l.cpus); n > maxLaneCPUs && f.redirects() {
			f.failf(lanePath(l.Lane, "cpus"), "%d processors, %s spreads a lane over at most %d", n,
				queueSet.Mechanism, maxLaneCPUs)
		}
		if l.Moderation != (intent.Moderation{}) {
			f.failf(l.Path, "moderation of lane %s on %s: all lanes share its receive queues (queue-set is %s); "+
				"write it in globals", l.Name, f.dev.Name, queueSet.Mechanism)
		}
	}
	if len(lanes)-1 > maxCPULanes && f.redirects() {
		f.failf("lanes", "%d lanes, %s can tell %d apart", len(lanes)-1, queueSet.Mechanism, maxCPULanes)
	}
}

// maxCPULanes is the largest number of lanes, without the default lane, in the XDP program
// (internal/kernel/bpf/c/ingress.c: MAX_LANES).
const maxCPULanes = 63

// maxLaneCPUs is the largest number of processors of one lane in the XDP program
// (internal/kernel/bpf/c/ingress.c: MAX_CPUS).
const maxLaneCPUs = 64

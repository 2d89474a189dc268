// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// Handles and class numbers of niclane's objects. They are constants, so that niclane finds the
// objects again if it was killed.
const (
	rootHandle     = "1:"
	rootClass      = "1:1"
	defaultMinor   = 2
	firstLaneMinor = 0x10
	// filterHandle is "nl" in ASCII.
	filterHandle = 0x6e6c
	// EgressProgram is the name of the classifier in package internal/kernel/bpf.
	EgressProgram = "niclane_egress"
)

// wantXPS sets XPS so that each lane's traffic stays on the lane's transmit queues. A packet
// leaves on the transmit queue that belongs to its flow's receive queue. A packet without a
// receive queue leaves on a queue of the default lane.
func (f *fit) wantXPS(lanes []*deviceLane, total int) {
	if !f.uses(device.PartMapper, ByXPSRxqs) {
		return
	}
	owner := make([]*deviceLane, total)
	for _, l := range lanes {
		for _, q := range l.queues {
			owner[q] = l
		}
	}
	// The default lane's queues get their processors first. As soon as a queue has processors, the
	// kernel no longer chooses a queue without processors by hash.
	for q, l := range owner {
		if l != nil && l.isDefault {
			f.wantXPSQueue(q, l, f.st.OnlineCPUs(),
				"traffic without a receive queue stays in the default lane's queues")
		}
	}
	for q, l := range owner {
		if l == nil || !l.isDefault {
			f.wantXPSQueue(q, l, nil, "the kernel does not choose it by processor")
		}
	}
	_, more := f.unpaired(total)
	for _, q := range more {
		f.want(device.File{
			Path:   fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_cpus", f.dev.Name, q),
			Format: device.FileCPUMask, Value: device.FormatMask(f.st.OnlineCPUs()),
		}, device.PartMapper, "globals.queues", fmt.Sprintf("transmit queue %d of lane default, which has no "+
			"receive queue: the kernel chooses it by processor", q))
	}
}

func (f *fit) wantXPSQueue(q int, l *deviceLane, cpus []int, why string) {
	cause := "globals.queues"
	rxqs := []int(nil)
	name := "no lane"
	if l != nil {
		cause, rxqs, name = lanePath(l.Lane, "queues"), []int{q}, "lane "+l.Name
	}
	dir := fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/", f.dev.Name, q)
	f.want(device.File{Path: dir + "xps_cpus", Format: device.FileCPUMask, Value: device.FormatMask(cpus)},
		device.PartMapper, cause, fmt.Sprintf("transmit queue %d of %s: %s", q, name, why))
	f.want(device.File{Path: dir + "xps_rxqs", Format: device.FileCPUMask, Value: device.FormatMask(rxqs)},
		device.PartMapper, cause, fmt.Sprintf("transmit queue %d of %s: symmetric with its receive queue", q, name))
}

// chooses reports whether the classifier picks the transmit queue.
func (f *fit) chooses() bool { return f.uses(device.PartMapper, ByQueueMapping) }

// wantClassifier makes the classifier, which gives the members' packets the class of their lane.
// It also gives them a transmit queue if the mapper is queue_mapping.
func (f *fit) wantClassifier(def *deviceLane, lanes []*deviceLane) {
	if len(lanes) == 0 {
		return
	}
	named, departs := f.priority(lanes[0]) != "", f.departs(append([]*deviceLane{def}, lanes...))
	if f.byGroup() {
		f.wantCgroupClasses(lanes)
		return
	}
	if f.choice[device.PartClassifier].Mechanism == "" || !named && !departs && !f.chooses() && !marked(lanes) {
		f.noteUnshaped(false)
		return
	}
	filter := device.Filter{Dev: f.dev.Name, Parent: device.AttachTCXEgress, Program: EgressProgram}
	if f.uses(device.PartClassifier, ByClsactBPF) {
		f.want(device.Qdisc{Dev: f.dev.Name, Parent: "clsact", Type: "clsact", Handle: "ffff:"},
			device.PartClassifier, "lanes", "the hook for filters that run before the queue is chosen")
		filter = device.Filter{Dev: f.dev.Name, Parent: "egress", Pref: f.freePref(), Handle: filterHandle,
			Program: EgressProgram}
	}
	what := "names its lane's class"
	switch {
	case departs && f.chooses():
		what = "chooses one of its lane's transmit queues and its departure time"
	case departs:
		what = "gives it its lane's departure time"
	case !named && !f.chooses():
		what = "gives it its lane's " + markNames(lanes)
	case !named:
		what = "chooses one of its lane's transmit queues"
	case f.chooses():
		what += " and transmit queue"
	}
	f.want(filter, device.PartClassifier, "lanes",
		"looks each packet's flow up in a map and "+what+"; later filters still run")
	switch {
	case f.chooses():
		f.want(device.FilterDefault{Filter: filter.Key(), Queues: def.queues}, device.PartMapper,
			lanePath(def.Lane, "queues"),
			"packets that no lane matches are sent on queues "+device.FormatCPUList(def.queues))
		f.wantNoXPS("the classifier chooses, not XPS", nil)
	case f.byPriority():
		var taken []int
		for _, l := range lanes {
			taken = append(taken, lanePriority(l.number))
		}
		slices.Sort(taken)
		f.want(device.FilterDefault{Filter: filter.Key(), Lanes: taken}, device.PartMapper,
			lanePath(def.Lane, "queues"),
			"packets that no lane matches get none of the lanes' priorities")
	}
	if departs {
		f.wantShares(filter.Key(), append([]*deviceLane{def}, lanes...))
	}
	f.wantTunnels(filter.Key(), device.PartClassifier)
	key := filter.Key()
	f.wantUnshaped(key)
	f.noteUnshaped(true)
	n := 0
	for _, l := range lanes {
		for i := range l.Members {
			n += len(f.matches(&l.Members[i]))
		}
	}
	f.wants = slices.Grow(f.wants, n)
	for _, l := range lanes {
		e := device.FilterEntry{Filter: key, Priority: f.priority(l), DSCP: l.DSCP, PCP: l.PCP}
		where := "its class"
		if departs {
			e.Lane, where = l.number, "its share of the link"
		}
		if f.chooses() {
			e.Queues = l.queues
			on := "transmit queues " + device.FormatCPUList(l.queues)
			if named || departs {
				on = where + " and " + on
			}
			where = on
		}
		reason := "packets of lane " + l.Name
		if named || departs || f.chooses() {
			reason += " to " + where
		} else if l.DSCP == "" && l.PCP == "" {
			continue
		}
		if marks := marksText(l.DSCP, l.PCP); marks != "" {
			reason += ", with " + marks
		}
		for i := range l.Members {
			for _, e.Match = range f.matches(&l.Members[i]) {
				f.want(e, device.PartClassifier, l.Members[i].Path, reason)
			}
		}
	}
}

// marked reports whether one of the lanes has a DSCP or a PCP.
func marked(lanes []*deviceLane) bool { return markNames(lanes) != "" }

// markNames returns which marks the lanes have: "DSCP", "PCP", "DSCP and PCP" or "".
func markNames(lanes []*deviceLane) string {
	var names []string
	if slices.ContainsFunc(lanes, func(l *deviceLane) bool { return l.DSCP != "" }) {
		names = append(names, "DSCP")
	}
	if slices.ContainsFunc(lanes, func(l *deviceLane) bool { return l.PCP != "" }) {
		names = append(names, "PCP")
	}
	return strings.Join(names, " and ")
}

// marksText describes a DSCP and a PCP, "" for neither.
func marksText(dscp, pcp string) string {
	var parts []string
	if dscp != "" {
		parts = append(parts, "DSCP "+dscp)
	}
	if pcp != "" {
		parts = append(parts, "PCP "+pcp)
	}
	return strings.Join(parts, " and ")
}

// checkTags refuses a PCP on a VLAN device: it makes the tag behind the classifier
// (vlan_dev_hard_start_xmit).
func (f *fit) checkTags(lanes []*deviceLane) {
	if f.dev.VLAN == 0 {
		return
	}
	below := "dev: " + f.dev.Lower
	if d := f.st.Device(f.dev.Lower); d != nil && d.Type == "bond" {
		below = "bond: " + f.dev.Lower
	}
	for _, l := range lanes {
		if l.PCP != "" {
			f.failf(lanePath(l.Lane, "pcp"), "%s on %s: this VLAN device makes the tag after niclane's classifier has "+
				"seen the packet; write %s and vlans: %d", l.PCP, f.dev.Name, below, f.dev.VLAN)
		}
	}
}

// noteUntagged adds a note if lanes have a PCP and the file names no VLANs: packets without a tag have
// no PCP.
func (f *fit) noteUntagged(lanes []*deviceLane) {
	if len(f.in.Group.VLANs) > 0 {
		return
	}
	var names []string
	for _, l := range lanes {
		if l.PCP != "" {
			names = append(names, l.Name)
		}
	}
	if len(names) > 0 {
		f.notef("a PCP is a part of a VLAN tag: packets of %s without a tag get none", strings.Join(names, ", "))
	}
}

// wantUnshaped takes the packets to unshaped networks out of all lanes, before the lanes' entries
// exist.
func (f *fit) wantUnshaped(filter string) {
	for i, m := range f.unshaped() {
		f.want(device.FilterEntry{Filter: filter, Match: m}, device.PartClassifier,
			fmt.Sprintf("%s[%d]", unshapedPath, i), "packets to "+m.Remote+" leave as the default lane's")
	}
}

const unshapedPath = "globals.unshaped"

// unshaped returns the matches of the unshaped networks, in the order of the file.
func (f *fit) unshaped() []device.Match {
	out := make([]device.Match, len(f.in.Group.Unshaped))
	for i, p := range f.in.Group.Unshaped {
		out[i] = device.Match{Family: 6, Remote: p.String()}
		if p.Addr().Is4() {
			out[i].Family = 4
		}
	}
	return out
}

// noteUnconnected adds a note if servers' answers by UDP leave by the default lane's queues. The kernel
// keeps the receive queue of a UDP socket only if the socket is connected (net/ipv4/udp.c:
// __udp_queue_rcv_skb), and a server's is not.
//
// The plan does not choose queue-mapping for such a lane by itself. The mapper is the device's: queue-mapping
// takes the lane's queues by a hash of the flow, so the other lanes' connections would lose the queue that
// goes with their receive queue. And it would change with the lanes: on a Kubernetes node, the first pod with a
// UDP port would move the packets of all running pods to other queues, and its end would move them back.
func (f *fit) noteUnconnected(lanes []*deviceLane) {
	if !f.uses(device.PartMapper, ByXPSRxqs) {
		return
	}
	var names []string
	for _, l := range lanes {
		if slices.ContainsFunc(l.Members, func(m intent.Member) bool {
			return m.Protocol == "udp" && len(m.Ports) > 0
		}) {
			names = append(names, l.Name)
		}
	}
	if len(names) > 0 {
		f.notef("lanes by UDP port (%s): a UDP server's socket has no receive queue, so its answers leave by the "+
			"default lane's queues (mapper %s); with force: {mapper: %s} the classifier sends them by the lane's",
			strings.Join(names, ", "), ByXPSRxqs, ByQueueMapping)
	}
}

// noteUnshaped adds a note with the unshaped networks. classified says whether there is a
// classifier.
func (f *fit) noteUnshaped(classified bool) {
	var to []string
	for _, p := range f.in.Group.Unshaped {
		to = append(to, p.String())
	}
	switch {
	case len(to) == 0:
	case !classified:
		f.notef("nothing is shaped or marked, so %s has no effect", unshapedPath)
	default:
		what := "packets to %s leave as the default lane's, whatever lane their flow belongs to"
		if f.uses(device.PartMapper, ByXPSRxqs) {
			what += ", but by the transmit queue of that lane (mapper " + ByXPSRxqs + ")"
		}
		f.notef(what, strings.Join(to, ", "))
	}
}

// checkReader refuses what needs a classifier that reads packets, if there is none.
func (f *fit) checkReader(lanes []*deviceLane) {
	c := f.choice[device.PartClassifier]
	var why string
	switch {
	case f.byGroup():
		why = fmt.Sprintf("the classifier %s reads no packets; leave force.classifier out", c.Mechanism)
	case c.Mechanism == "":
		why = "no classifier reads packets: " + f.reasons(Choice{Rejected: slices.DeleteFunc(slices.Clone(c.Rejected),
			func(r Rejection) bool { return r.Mechanism != ByClsactBPF && r.Mechanism != ByTCX })})
	default:
		return
	}
	for _, l := range lanes {
		if l.DSCP != "" {
			f.failf(lanePath(l.Lane, "dscp"), "%s on %s: %s, or let the application set the DSCP (IP_TOS)", l.DSCP,
				f.dev.Name, why)
		}
		if l.PCP != "" {
			f.failf(lanePath(l.Lane, "pcp"), "%s on %s: %s, or let the VLAN device set the PCP by priority "+
				"(ip link set DEV type vlan egress-qos-map)", l.PCP, f.dev.Name, why)
		}
	}
	if len(f.in.Group.Unshaped) > 0 && f.byGroup() {
		f.failf(unshapedPath, "networks on %s: %s, or unshaped", f.dev.Name, why)
	}
}

// byGroup reports whether the classifier distinguishes members by control group.
func (f *fit) byGroup() bool {
	return f.uses(device.PartClassifier, BySockops) || f.uses(device.PartClassifier, ByNetPrio)
}

// wantCgroupClasses gives packets of the members' control groups the class of their lane.
func (f *fit) wantCgroupClasses(lanes []*deviceLane) {
	name := f.choice[device.PartClassifier].Mechanism
	if f.priority(lanes[0]) == "" {
		f.notef("nothing is shaped, so the classifier %s has no class to set", name)
		return
	}
	owner := map[string]*deviceLane{}
	for _, l := range lanes {
		for i := range l.Members {
			m := &l.Members[i]
			switch other := owner[m.Cgroup]; {
			case m.Cgroup == "":
				f.failf(m.Path, "the classifier %s tells members apart by control group: give cgroup", name)
				continue
			case other == l:
				continue
			case other != nil:
				f.failf(m.Path+".cgroup", "%s is in lane %s too, and the classifier %s tells members apart by "+
					"control group", m.Cgroup, other.Name, name)
				continue
			}
			if where, ok := f.hasGroup(m.Cgroup); !ok {
				f.failf(m.Path+".cgroup", "no control group %q in %s, where the classifier %s looks", m.Cgroup, where,
					name)
				continue
			}
			owner[m.Cgroup] = l
			f.want(f.groupObject(m.Cgroup, f.priority(l)), device.PartClassifier, m.Path+".cgroup",
				fmt.Sprintf("sockets of %s to lane %s's class", m.Cgroup, l.Name))
		}
	}
}

// hasGroup reports whether a control group exists in the hierarchy that the classifier uses.
// where describes that hierarchy.
func (f *fit) hasGroup(group string) (where string, ok bool) {
	g := f.st.Cgroups
	if f.uses(device.PartClassifier, ByNetPrio) {
		return "the net_prio hierarchy at " + g.V1["net_prio"], g.PrioGroups[group]
	}
	return "the unified hierarchy at " + g.V2, g.V2Groups[group]
}

// groupObject returns the object that gives the packets of a control group a priority.
func (f *fit) groupObject(group, priority string) device.Object {
	if f.uses(device.PartClassifier, ByNetPrio) {
		return device.CgroupPriority{Cgroup: group, Dev: f.dev.Name, Priority: priority}
	}
	return device.CgroupClass{Cgroup: group, Priority: priority}
}

// wantNoXPS clears the XPS files of the transmit queues: the kernel would prefer them to the
// classifier's choice (net/core/dev.c: netdev_pick_tx). It skips the files in paired, which are
// set later.
func (f *fit) wantNoXPS(why string, paired []device.File) {
	later := map[string]bool{}
	for _, p := range paired {
		later[p.Path] = true
	}
	total := f.dev.TxQueues
	if _, shall, ok := f.channels(total); ok {
		total = min(total, shall.TX+shall.Combined)
	}
	for q := range total {
		for _, name := range []string{"xps_cpus", "xps_rxqs"} {
			path := fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/%s", f.dev.Name, q, name)
			if _, ok := f.st.Files[path]; ok && !later[path] {
				f.want(device.File{Path: path, Format: device.FileCPUMask, Value: device.FormatMask(nil)},
					device.PartMapper, "lanes", fmt.Sprintf("transmit queue %d: %s", q, why))
			}
		}
	}
}

// wantedClasses returns the IDs of the HTB classes that are in the plan so far.
func (f *fit) wantedClasses() (ids []string) {
	for _, w := range f.wants {
		if c, ok := w.Object.(device.Class); ok {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// freePref returns a preference for niclane's filter: that of its present filter, otherwise the
// first one that no other egress filter uses.
func (f *fit) freePref() uint16 {
	used := map[uint16]bool{}
	for _, x := range f.dev.Filters {
		if x.Parent != "egress" {
			continue
		}
		if _, ours := f.owned[x.Filter.Key()]; ours && x.Handle == filterHandle {
			return x.Pref
		}
		used[x.Pref] = true
	}
	for pref := uint16(1); ; pref++ {
		if !used[pref] {
			return pref
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// checkParts reports an error for each part that the lanes need and for which this device has no
// mechanism. It also reports keys of force that are no parts.
func (f *fit) checkParts(lanes []*deviceLane) {
	for name := range f.in.Group.Force {
		if Mechanisms(device.Part(name)) == nil {
			f.failf("globals.force."+name, "no part of a lane is called %q", name)
		}
	}
	for part, name := range f.in.Group.Force {
		if c := f.choice[device.Part(part)]; c.Mechanism == "" && Mechanisms(device.Part(part)) != nil {
			f.failf("globals.force."+part, "%s on %s: %s", name, f.dev.Name, f.reasons(c))
		}
	}
	if len(lanes) > 1 {
		f.require(device.PartQueueSet, f.in.Lanes[0].Path)
		if f.choice[device.PartQueueSet].Mechanism != "" {
			f.require(device.PartSteering, f.in.Lanes[0].Path)
		}
		f.require(device.PartMapper, f.in.Lanes[0].Path)
	}
	if len(lanes) > 1 && (f.chooses() || f.byPriority()) {
		f.require(device.PartClassifier, f.in.Lanes[0].Path)
	}
	for _, l := range lanes {
		if !l.Bandwidth.Guarantee.IsZero() || !l.Bandwidth.Ceiling.IsZero() || l.Rank != 0 {
			f.require(device.PartBandwidth, l.Path)
			f.require(device.PartClassifier, l.Path)
			break
		}
	}
	if f.classes() && !f.byCard() && f.choice[device.PartMapper].Mechanism != "" {
		f.failf("globals.force.mapper",
			"%s on %s: the queues are traffic classes of the card, which chooses them by priority (%s)",
			f.choice[device.PartMapper].Mechanism, f.dev.Name, ByMqprioChannel)
	}
	f.checkPollers(lanes)
	f.checkBandwidth(lanes)
	f.checkReader(lanes)
	f.checkTags(lanes)
	if most := f.dev.MaxContexts; most > 0 && len(f.in.Lanes) > most-f.foreignContexts() &&
		f.uses(device.PartQueueSet, ByRSSContext) {
		others := ""
		if n := f.foreignContexts(); n > 0 {
			others = fmt.Sprintf("; niclane did not make %d of them", n)
		}
		f.failf("lanes", "%d lanes, %s has room for %d RSS contexts beside the default%s", len(f.in.Lanes), f.dev.Name,
			most, others)
	}
}

// foreignContexts returns the number of RSS contexts that niclane did not make.
func (f *fit) foreignContexts() (n int) {
	for _, t := range f.dev.RSS {
		if _, ours := f.owned[t.Key()]; t.Context > 0 && !ours {
			n++
		}
	}
	return n
}

// require reports an error if the part has no mechanism. The message lists the mechanisms that
// were tried.
func (f *fit) require(part device.Part, path string) {
	c := f.choice[part]
	if c.Mechanism == "" && f.in.Group.Force[string(part)] == "" {
		f.failf(path, "no %s on %s: %s", part, f.dev.Name, f.reasons(c))
	}
}

func (f *fit) reasons(c Choice) string {
	if len(c.Rejected) == 0 {
		return c.Reason
	}
	var rs []string
	for _, r := range c.Rejected {
		rs = append(rs, r.Mechanism+" ("+r.Why+")")
	}
	return "tried " + strings.Join(rs, ", ")
}

func (f *fit) checkBandwidth(lanes []*deviceLane) {
	if !shaped(lanes) {
		return
	}
	if name := f.choice[device.PartBandwidth].Mechanism; f.tooLittle(lanes)[name] != "" {
		f.failf("globals.force.bandwidth", "%s on %s %s", name, f.dev.Name, f.tooLittle(lanes)[name])
	}
	if f.link == 0 {
		f.failf("globals.link-rate", "%s does not report its speed, which the lanes share: give link-rate", f.dev.Name)
		return
	}
	var sum uint64
	root := rootRate(f.link)
	for _, l := range lanes {
		g, c := f.guarantee(l), f.ceiling(l)
		if g > root {
			f.failf(lanePath(l.Lane, "guarantee"), "%s is more than the %s that can be given on %s: 2 %% of its %s "+
				"stay free, so that queues build on the host%s",
				device.RateText(g), device.RateText(root), f.dev.Name, device.RateText(f.link), f.hint())
		}
		if c > f.link {
			f.failf(lanePath(l.Lane, "ceiling"), "%s is more than the link of %s (%s)%s", device.RateText(c),
				f.dev.Name, device.RateText(f.link), f.hint())
		}
		if c > 0 && g > c {
			f.failf(lanePath(l.Lane, "guarantee"), "%s is more than the lane's ceiling of %s", device.RateText(g),
				device.RateText(c))
		}
		sum += g
	}
	if sum > root {
		f.failf("lanes", "guarantees add up to %s, %s can give %s: 2 %% of its %s stay free, so that queues build "+
			"on the host%s",
			device.RateText(sum), f.dev.Name, device.RateText(root), device.RateText(f.link), f.hint())
	}
}

// checkForeign refuses a device if the lanes would have to replace settings of other programs on
// it.
func (f *fit) checkForeign(lanes []*deviceLane) {
	for _, q := range f.dev.Qdiscs {
		if q.Parent != "root" || q.Handle == "0:" {
			continue
		}
		_, ours := f.owned[q.Key()]
		switch {
		case ours:
		case f.dev.PlainRoot(q.Qdisc):
			// rollback could not make the leaves again: only a new mq has the kernel's own.
			if q.Handle == rootHandle && f.wantsMq(lanes) {
				f.failf("globals.dev", "the root qdisc of %s has the handle that niclane gives to its own (mq %s): "+
					"give it another (tc qdisc replace dev %[1]s root mq)", f.dev.Name, q.Handle)
			}
		default:
			f.failf("globals.dev", "%s has a root qdisc that niclane did not make (%s %s): remove it (tc qdisc del "+
				"dev %s root) or leave the device out",
				f.dev.Name, q.Type, q.Handle, f.dev.Name)
		}
	}
	if x, ok := f.dev.XDP(); ok && x.Program != IngressProgram {
		f.notef("an XDP program is attached (%s, %s): packets that it redirects or drops never reach a lane",
			nameOr(x.Program, "without a name"), x.Mode)
	}
}

// wantsMq reports whether niclane's root qdisc will be an mq.
func (f *fit) wantsMq(lanes []*deviceLane) bool {
	return shaped(lanes) && (f.uses(device.PartBandwidth, ByEDT) || f.uses(device.PartBandwidth, ByMqTBF))
}

// checkMembers refuses members that the chosen mechanisms cannot distinguish, and rules that do
// not fit into the card.
func (f *fit) checkMembers(lanes []*deviceLane) {
	var rules int
	byCard := f.uses(device.PartSteering, ByRules) || f.uses(device.PartSteering, ByFlower)
	for _, l := range lanes[1:] {
		for i := range l.Members {
			m := &l.Members[i]
			need := m.Rules() * max(1, len(f.in.Group.VLANs))
			if need == 0 {
				f.failf(m.Path, "addrs and remote-addrs have no address family in common")
			}
			rules += need
			f.checkCgroup(l, m)
			if most := max(len(m.Ports), len(m.RemotePorts)); byCard && most > intent.FewPorts &&
				(f.dev.RuleCapacity == 0 || !f.uses(device.PartSteering, ByRules)) {
				f.failf(m.Path, "%d ports need %d rules on %s, which compares single ports; want at most %d ports, "+
					"or ranges that niclane's own program compares (force: {queue-set: %s})",
					most, need, f.dev.Name, intent.FewPorts, ByCpumap)
			}
		}
	}
	if free := f.dev.RuleCapacity - f.foreignRules(); f.uses(device.PartSteering, ByRules) &&
		f.dev.RuleCapacity > 0 && rules > free {
		f.failf("lanes", "%d rules needed, %d free on %s", rules, free, f.dev.Name)
	}
	f.checkPatterns(lanes[1:])
	if len(f.errs) > 0 || len(f.dev.Rules) == 0 {
		return
	}
	for _, l := range lanes[1:] {
		for i := range l.Members {
			f.checkForeignRules(&l.Members[i], f.rules(&l.Members[i]))
		}
	}
}

// maxPatterns is the largest number of different sets of compared fields for which niclane's
// classifier and the emulated card look up a packet (internal/kernel/bpf/c/flow.h,
// lab/emucard/c/card.c: MAX_PATTERNS).
const maxPatterns = 16

// A Pattern is a set of fields that a match compares: two matches that differ only in values have
// the same Pattern.
type Pattern struct {
	family, localBits, remoteBits int
	protocol                      string
	localPort, remotePort         int // number of bits compared
	vlan                          bool
}

// PatternOf returns the Pattern of a match.
func PatternOf(m device.Match) Pattern {
	return Pattern{m.Family, prefixBits(m.Local), prefixBits(m.Remote), m.Protocol,
		portBits(m.LocalPort, m.LocalPortBits), portBits(m.RemotePort, m.RemotePortBits), m.VLAN != 0}
}

func portBits(port uint16, bits int) int {
	if port != 0 && bits == 0 {
		return 16
	}
	return bits
}

// checkPatterns refuses a file whose members compare too many different sets of fields. Each set
// costs one lookup per packet.
func (f *fit) checkPatterns(lanes []*deviceLane) {
	seen := map[Pattern]bool{}
	var last Pattern // most members have the pattern of the member before
	for _, l := range lanes {
		for i := range l.Members {
			for _, m := range f.matches(&l.Members[i]) {
				p := PatternOf(m)
				if p != last {
					seen[p], last = true, p
				}
			}
		}
	}
	if members := len(seen); members > maxPatterns {
		f.failf("lanes", "the members compare %d different sets of fields (prefix lengths count), at most %d can be "+
			"told apart", members, maxPatterns)
		return
	}
	for _, m := range f.unshaped() {
		seen[PatternOf(m)] = true
	}
	if len(seen) > maxPatterns {
		f.failf(unshapedPath, "the members and these networks compare %d different sets of fields (prefix lengths "+
			"count), at most %d can be told apart", len(seen), maxPatterns)
	}
}

// prefixBits returns the length of a match's prefix, 0 for any address.
func prefixBits(prefix string) int {
	_, length, given := strings.Cut(prefix, "/")
	if !given {
		return 0
	}
	n, _ := strconv.Atoi(length) // the text is from ofFamily and always parses
	return n
}

func (f *fit) foreignRules() int {
	n := len(f.dev.OtherRules)
	for _, r := range f.dev.Rules {
		if _, ours := f.owned[r.Key()]; !ours {
			n++
		}
	}
	return n
}

func (f *fit) checkForeignRules(m *intent.Member, ms []device.Match) {
	if len(f.dev.Rules) == 0 {
		return
	}
	for _, match := range ms {
		r := device.Rule{Dev: f.dev.Name, Match: match}
		if now, ok := f.present[r.Key()]; ok {
			if _, ours := f.owned[r.Key()]; !ours {
				f.failf(m.Path, "%s already has a rule for %s that niclane did not make (to %s)",
					f.dev.Name, match, now.Brief())
			}
		}
	}
}

// checkCgroup refuses a control group that does not exist. It also refuses one whose processors
// cannot be set although the file asks for it.
func (f *fit) checkCgroup(l *deviceLane, m *intent.Member) {
	if m.Cgroup == "" {
		return
	}
	g := f.st.Cgroups
	dir := g.CpusetDir(m.Cgroup)
	if !g.Exists(m.Cgroup) {
		f.failf(m.Path+".cgroup",
			"no control group %q (looked for %s): start it first, or let niclane watch or persist wait for it",
			m.Cgroup, cmp.Or(dir, path.Join(cmp.Or(g.V2, "/sys/fs/cgroup"), m.Cgroup)))
		return
	}
	cpus := f.memberCPUs(l, m)
	if len(cpus)+len(m.CgroupMems) == 0 {
		return // niclane sets nothing in the group
	}
	if more := without(m.CgroupCPUs, f.st.OnlineCPUs()); len(more) > 0 {
		f.failf(m.Path+".cgroup-cpus", "processor %d is not online (online: %s)", more[0],
			device.FormatCPUList(f.st.OnlineCPUs()))
	}
	if more := without(m.CgroupMems, nodesOf(f.st, f.st.OnlineCPUs())); len(more) > 0 {
		f.failf(m.Path+".cgroup-mems", "no NUMA node %d here (nodes with processors: %s)", more[0],
			device.FormatCPUList(nodesOf(f.st, f.st.OnlineCPUs())))
	}
	f.require(device.PartProcessors, m.Path+".cgroup")
	if _, ok := f.st.Files[dir+"/cpuset.cpus"]; ok || f.choice[device.PartProcessors].Mechanism == "" {
		return
	}
	if !g.Groups[m.Cgroup] {
		f.failf(m.Path+".cgroup", "no control group %q in the hierarchy of cpuset (looked for %s): leave cpus of "+
			"lane %s out, or leave cgroup out", m.Cgroup, dir, l.Name)
		return
	}
	how := "enable the cpuset controller in its parent's cgroup.subtree_control"
	if unit := path.Base(m.Cgroup); strings.HasSuffix(unit, ".service") || strings.HasSuffix(unit, ".scope") ||
		strings.HasSuffix(unit, ".slice") {
		how = fmt.Sprintf("let systemd enable the controller (systemctl set-property %s AllowedCPUs=%s)", unit,
			device.FormatCPUList(cpus))
	}
	f.failf(m.Path+".cgroup", "%q has no cpuset.cpus file for the cpus of lane %s: %s, or leave cpus out",
		m.Cgroup, l.Name, how)
}

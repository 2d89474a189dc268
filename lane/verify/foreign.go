// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// foreign looks for objects that niclane does not own and that break a lane. Either they have
// changed since the apply, or they did not exist then.
func (c *check) foreign() {
	if c.before == nil && len(c.a.Owned) > 0 {
		c.found = append(c.found, objectFinding{Finding: Finding{
			Severity: Unknown,
			Meaning: "the other objects right after apply are not recorded (an older niclane applied, or its run " +
				"directory is gone): verify does not find changes of objects that niclane did not write",
			Repair: "niclane rollback " + c.a.Config + ", then " + c.apply(),
		}})
	}
	keys := slices.Sorted(maps.Keys(c.present))
	for key := range c.before {
		if _, ok := c.present[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if _, ours := c.owned[key]; ours {
			continue
		}
		was, now := c.before[key], c.present[key]
		switch {
		case c.before != nil && was != nil && !device.Equal(was, now):
			c.changed(was, now)
		case was == nil:
			c.came(now)
		}
	}
	c.programs()
}

// changed adds a finding for an object that niclane has not written, that existed right after the
// apply, and that has another value now.
func (c *check) changed(was, now device.Object) {
	c.confined(was, now)
	lane := c.laneOf(was, "")
	part, relevant := c.leaned(was)
	if !relevant {
		return
	}
	f := objectFinding{object: was, absent: now == nil, Finding: Finding{
		Severity: Drift, Lane: lane, Device: c.deviceOf(was), Part: part, Key: was.Key(),
		Want: text(was, now), Found: text(now, was),
		Meaning: c.meaning(was, was, now, lane), Repair: c.undo(was),
	}}
	c.found = append(c.found, f)
}

// confined adds a finding if a control group had a lane's processors before the apply, and has
// others now. The journal does not say whether the lanes file asks for that.
func (c *check) confined(was, now device.Object) {
	f, is := was.(device.File)
	if !is || now == nil || path.Base(f.Path) != "cpuset.cpus" {
		return
	}
	cpus, _, _ := listed(f)
	lane := ""
	for _, l := range c.a.Lanes {
		if l.Name != intent.DefaultLane && slices.Equal(l.CPUs, cpus) {
			lane = l.Name
		}
	}
	if lane != "" {
		c.found = append(c.found, objectFinding{object: was, Finding: Finding{
			Severity: Unknown, Lane: lane, Part: device.PartProcessors, Key: was.Key(), Want: text(was, now),
			Found:   text(now, was),
			Meaning: c.fileMeaning(f, was, now), Repair: c.apply() + ", if the file names cpus",
		}})
	}
}

// offloads reports whether the card has flower filters or classes of the lanes.
func (c *check) offloads(dev string) bool {
	return slices.ContainsFunc(c.a.Owned, func(r plan.Record) bool {
		switch o := r.Last.(type) {
		case device.Flower:
			return o.Dev == dev
		case device.Qdisc:
			return o.Dev == dev && (o.Offload || o.Mode != "")
		}
		return false
	})
}

// leaned returns the part of the lanes that needs an object, although niclane did not write it.
// It returns false if the lanes do not need it.
func (c *check) leaned(o device.Object) (device.Part, bool) {
	dev := c.deviceOf(o)
	if !slices.Contains(c.deviceNames(), dev) || c.now.Device(dev) == nil {
		return "", false
	}
	switch o := o.(type) {
	case device.File:
		switch path.Base(o.Path) {
		case "xps_cpus", "xps_rxqs":
			return device.PartMapper, true
		case "tx_maxrate":
			return device.PartBandwidth, c.ownerOf(dev, c.queueOf(o)) != ""
		case "rps_cpus", "rps_flow_cnt":
			return device.PartSteering, c.reserved(dev, c.queueOf(o)) || c.redirects(dev) || c.steersAway(dev)
		}
	case device.Affinity:
		return device.PartInterrupts, c.reserved(dev, o.Queue)
	case device.RSSTable:
		return device.PartQueueSet, true
	case device.NAPIConfig:
		return device.PartPoller, c.reserved(dev, o.Queue)
	case device.Thread:
		return device.PartPoller, c.reserved(dev, o.Queue)
	case device.Feature:
		return device.PartSteering, slices.Contains([]string{"rx-ntuple-filter", "rx-hashing", "rx-gro"}, o.Name) ||
			o.Name == "hw-tc-offload" && c.offloads(dev)
	}
	return "", false
}

// undo says how to restore an object that niclane does not own.
func (c *check) undo(was device.Object) string {
	switch o := was.(type) {
	case device.File:
		return fmt.Sprintf("%s, or echo %s > %s", c.apply(), o.Value, o.Path)
	case device.Affinity:
		by := []string{c.apply()}
		for _, irq := range c.now.Device(o.Dev).IRQs { // ascending by number, like o.CPUs
			if n := len(by) - 1; irq.Queue == o.Queue && n < len(o.CPUs) {
				by = append(by, fmt.Sprintf("echo %s > %s", o.CPUs[n], device.IRQPath(irq.Number)))
			}
		}
		return strings.Join(by, ", or ")
	case device.NAPIConfig:
		return fmt.Sprintf("%s, or ynl --family netdev --do napi-set for the NAPI of %s rx-%d: threaded %s, "+
			"defer-hard-irqs %d, gro-flush-timeout %d",
			c.apply(), o.Dev, o.Queue, o.Threaded, o.DeferHardIRQs, o.GROFlushTimeout)
	case device.Feature:
		word := "off"
		if o.On {
			word = "on"
		}
		return fmt.Sprintf("ethtool -K %s %s %s, then %s", o.Dev, o.Name, word, c.apply())
	}
	return c.apply()
}

// came adds a finding for an object of another program that breaks a lane. The object did not
// exist right after the apply, or it is not known whether it did.
func (c *check) came(o device.Object) {
	dev := c.deviceOf(o)
	if !slices.Contains(c.deviceNames(), dev) {
		return
	}
	switch o := o.(type) {
	case device.Rule:
		c.cameRule(o)
	case device.RSSTable:
		c.cameTable(o)
	case device.Flower:
		if l := c.nthLane(dev, o.Class); l != "" && o.Class > 0 {
			c.add(Drift, l, o, device.PartSteering, "packets of "+o.Match.String()+" arrive in the lane's traffic "+
				"class and are not the lane's",
				fmt.Sprintf("tc filter del dev %s ingress (tc filter show dev %s ingress names it)", dev, dev))
		}
	case device.Shaper:
		if l := c.ownerOf(dev, o.Queue); l != "" {
			c.add(Drift, l, o, device.PartBandwidth,
				"the card keeps rates that no lane asks for on a transmit queue of the lane",
				fmt.Sprintf("ynl --family net-shaper --do delete, for queue %d of %s", o.Queue, dev))
		}
	case device.Filter:
		if o.Parent == "egress" {
			c.cameFilter(o.Key(), o.Pref, o.Program, dev)
		}
	case device.Qdisc:
		if o.Parent != "clsact" && c.before != nil {
			c.add(Drift, c.classLane(dev, o.Parent), o, device.PartBandwidth,
				"packets wait in a qdisc that another program has added below or above the lanes' qdiscs",
				fmt.Sprintf("tc qdisc del dev %s %s", dev, qdiscPlace(o)))
		}
	case device.Class:
		if c.before != nil {
			c.add(Drift, "", o, device.PartBandwidth,
				"a class of another program shares the link with the lanes: guarantees do not add up",
				fmt.Sprintf("tc class del dev %s classid %s", dev, o.ID))
		}
	case device.FilterEntry:
		what := "packets of " + o.Match.String() + " leave as the lane's, and no lane asks for them"
		if o.Unshaped() {
			what = "packets to " + o.Match.Remote + " leave in no lane, and the file does not ask for it"
		}
		c.add(Drift, c.classLane(dev, o.Priority), o, device.PartClassifier, what,
			"niclane rollback "+c.a.Config+", then "+c.apply())
	case device.XDPEntry:
		c.add(Drift, "", o, device.PartSteering,
			"packets of "+o.Match.String()+" arrive as a lane's, and no lane asks for them",
			"niclane rollback "+c.a.Config+", then "+c.apply())
	}
}

func qdiscPlace(q device.Qdisc) string {
	if q.Parent == "root" {
		return "root"
	}
	return "parent " + q.Parent
}

// add adds a finding about an object that should not exist.
func (c *check) add(s Severity, lane string, o device.Object, part device.Part, meaning, repair string) {
	c.found = append(c.found, objectFinding{object: o, Finding: Finding{
		Severity: s, Lane: lane, Device: c.deviceOf(o), Part: part, Key: o.Key(), Want: "absent", Found: brief(o),
		Meaning: meaning, Repair: repair,
	}})
}

func (c *check) cameRule(r device.Rule) {
	remove := fmt.Sprintf("ethtool -N %s delete LOCATION (ethtool -n %s shows it)", r.Dev, r.Dev)
	if lane := c.target(r); r.Context > 0 && lane != "" || r.Context == 0 && c.reserved(r.Dev, r.Queue) {
		c.add(Drift, lane, r, device.PartSteering, "packets of "+r.Match.String()+" arrive in the lane's queues and "+
			"are not the lane's", remove)
		return
	}
	if c.before == nil {
		return
	}
	for _, own := range c.a.Owned {
		mine, ok := own.Last.(device.Rule)
		if ok && mine.Dev == r.Dev && overlap(mine.Match, r.Match) {
			c.add(Drift, c.target(mine), r, device.PartSteering,
				"it may take packets of "+mine.Match.String()+
					" from the lane: if both match, the card decides by location", remove)
			return
		}
	}
}

func (c *check) cameTable(t device.RSSTable) {
	var hit []int
	for _, q := range t.Queues {
		if c.reserved(t.Dev, q) && !slices.Contains(hit, q) {
			hit = append(hit, q)
		}
	}
	if len(hit) == 0 {
		return
	}
	slices.Sort(hit)
	c.add(Drift, c.ownerOf(t.Dev, hit[0]), t, device.PartQueueSet,
		fmt.Sprintf("packets that rules of another program send to context %d arrive in queues %s of the "+
			"lane", t.Context,
			device.FormatCPUList(hit)),
		fmt.Sprintf("ethtool -X %s context %d delete", t.Dev, t.Context))
}

// classifier returns niclane's filter at the device's egress.
func (c *check) classifier(dev string) (device.Filter, bool) {
	for _, r := range c.a.Owned {
		if f, ok := r.Last.(device.Filter); ok && f.Dev == dev && f.Parent == "egress" {
			return f, true
		}
	}
	return device.Filter{}, false
}

// cameFilter adds a finding if another program's egress filter runs before niclane's. The kernel
// runs filters in the order of their preferences. Of BPF filters with the same preference, the
// newest runs first (cls_bpf.c, cls_bpf_change: list_add_rcu).
func (c *check) cameFilter(key string, pref uint16, program, dev string) {
	own, ok := c.classifier(dev)
	if !ok || slices.ContainsFunc(c.found, func(f objectFinding) bool { return f.Key == key }) {
		return
	}
	f := Finding{
		Severity: Drift, Device: dev, Part: device.PartClassifier, Key: key,
		Want:  fmt.Sprintf("niclane's classifier (pref %d) first", own.Pref),
		Found: strings.TrimSpace(fmt.Sprintf("%s at pref %d, before it", program, pref)),
		Meaning: "the packets that it does not pass on never reach niclane's classifier: they leave as the default " +
			"lane's, or elsewhere",
		Repair: fmt.Sprintf("move it behind pref %d, or tc filter del dev %s egress pref %d", own.Pref, dev, pref),
	}
	if pref > own.Pref {
		f.Severity = Unknown
		f.Found = strings.TrimSpace(fmt.Sprintf("%s at pref %d, after it", program, pref))
		f.Want = "nothing new after niclane's classifier"
		f.Meaning = "it came after apply and can give packets another class or queue than their lane's; what it " +
			"does is not known"
	}
	if c.before == nil {
		f.Severity = Unknown
	}
	c.found = append(c.found, objectFinding{Finding: f})
}

// programs looks for new filters that are not BPF, and for new programs outside tc.
func (c *check) programs() {
	for _, name := range c.deviceNames() {
		d := c.now.Device(name)
		if d == nil {
			continue
		}
		was := &device.Device{}
		if c.a.State != nil && c.a.State.Device(name) != nil {
			was = c.a.State.Device(name)
		}
		for _, x := range d.Filters {
			if x.Type != "bpf" && x.Parent == "egress" &&
				!slices.ContainsFunc(was.Filters, func(y device.FilterState) bool { return sameFilter(x, y) }) {
				// For the kernel, one u32 filter is several filters, so the key has only the preference.
				c.cameFilter(fmt.Sprintf("filter/%s/egress/%d", name, x.Pref), x.Pref, x.Type, name)
			}
		}
		for _, p := range d.Programs {
			if !slices.ContainsFunc(was.Programs, func(q device.Program) bool {
				return q.Attach == p.Attach &&
					q.ID == p.ID
			}) {
				c.cameProgram(name, p)
			}
		}
	}
}

// sameFilter compares only those parts of a filter that the kernel does not change.
func sameFilter(a, b device.FilterState) bool {
	return a.Filter.Key() == b.Filter.Key() && a.Type == b.Type
}

func (c *check) cameProgram(dev string, p device.Program) {
	if _, ours := c.owned[device.XDP{Dev: dev}.Key()]; ours && strings.HasPrefix(p.Attach, "xdp") {
		return // it was already compared as an object
	}
	f := Finding{
		Severity: Drift, Device: dev, Part: device.PartClassifier,
		Key:  "program/" + dev + "/" + p.Attach + "/" + p.Name,
		Want: "absent", Found: fmt.Sprintf("%s, program %d", p.Name, p.ID),
	}
	switch p.Attach {
	case device.AttachTCXEgress:
		if _, ok := c.classifier(dev); !ok {
			return
		}
		f.Meaning = "it runs before niclane's classifier: packets that it does not pass on (TCX_NEXT) leave as the " +
			"default lane's, or elsewhere"
		f.Repair = "detach it, if it is not meant to be there (bpftool net show dev " + dev + ")"
	case device.AttachXDP, device.AttachXDPGeneric:
		f.Part = device.PartSteering
		f.Meaning = "it runs before everything else: packets that it drops, sends or redirects never reach a lane"
		f.Repair = "ip link set dev " + dev + " xdp off, if it is not meant to be there"
	default:
		return
	}
	if c.before == nil {
		f.Severity = Unknown
	}
	c.found = append(c.found, objectFinding{Finding: f})
}

// overlap reports whether one packet can match both.
func overlap(a, b device.Match) bool {
	if a.Family != b.Family || a.Protocol != b.Protocol {
		return false
	}
	same := func(x, y int) bool { return x == 0 || y == 0 || x == y }
	return same(a.VLAN, b.VLAN) && device.SamePort(a.LocalPort, a.LocalPortBits, b.LocalPort, b.LocalPortBits) &&
		device.SamePort(a.RemotePort, a.RemotePortBits, b.RemotePort, b.RemotePortBits) &&
		meet(a.Local, b.Local) && meet(a.Remote, b.Remote)
}

// meet reports whether two prefixes have an address in common. "" contains all addresses.
func meet(a, b string) bool {
	p, err := netip.ParsePrefix(a)
	if err != nil {
		return true
	}
	q, err := netip.ParsePrefix(b)
	return err != nil || p.Overlaps(q)
}

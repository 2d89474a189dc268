// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/niclane/niclane/device"
)

// Identities that niclane chooses, so that its objects can be found again
// after a kill.
const (
	rootHandle     = "1:"
	rootClass      = "1:1"
	defaultMinor   = 2
	firstLaneMinor = 0x10
	// filterHandle is "nl" in ASCII.
	filterHandle = 0x6e6c
	// EgressProgram is the name of the classifier in package internal/bpf.
	EgressProgram = "niclane_egress"
)

// wantXPS fences the transmit queues: traffic transmits on the queue that
// received it, and what has no receive queue yet stays in the default lane's.
func (f *fit) wantXPS(lanes []*placed, total int) {
	if !f.uses(device.PartMapper, RealXPSRxqs) {
		return
	}
	owner := make([]*placed, total)
	for _, l := range lanes {
		for _, q := range l.queues {
			owner[q] = l
		}
	}
	// The default lane's queues get their processors first: from then on
	// no queue without any is chosen by hash.
	for q, l := range owner {
		if l != nil && l.isDefault {
			f.wantXPSQueue(q, l, f.st.OnlineCPUs(), "traffic without a receive queue stays in the default lane's queues")
		}
	}
	for q, l := range owner {
		if l == nil || !l.isDefault {
			f.wantXPSQueue(q, l, nil, "no foreign traffic by processor")
		}
	}
}

func (f *fit) wantXPSQueue(q int, l *placed, cpus []int, why string) {
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

// shaped reports whether the file asks for anything that needs shaping.
func shaped(lanes []*placed) bool {
	for _, l := range lanes {
		if !l.Bandwidth.Guarantee.IsZero() || !l.Bandwidth.Ceiling.IsZero() || l.Rank != 0 {
			return true
		}
	}
	return false
}

// rootRate is what is shared out on a link: a little less than its rate, so
// that the queue builds in the qdisc, where rank decides, and not behind it.
// 2 % covers preamble, frame check and gap of full-size frames (24 of 1538
// bytes), which HTB does not count.
func rootRate(link uint64) uint64 { return link / 100 * 98 }

// wantBandwidth makes one HTB class per lane under a common root class.
func (f *fit) wantBandwidth(lanes []*placed) {
	if !f.uses(device.PartBandwidth, RealHTB) || !shaped(lanes) {
		return
	}
	root := rootRate(f.link)
	f.wants = append(f.wants, want{
		Object: device.Qdisc{Dev: f.dev.Name, Parent: "root", Type: "htb", Handle: rootHandle, DefaultClass: defaultMinor},
		part:   device.PartBandwidth, cause: "lanes", disruptive: true,
		reason: "one queue for the link, in front of the card's",
	})
	f.want(f.class(rootClass, rootHandle, root, root, 0), device.PartBandwidth, "globals.link-rate",
		fmt.Sprintf("98 %% of the link's %s, so that queues build here", rateText(f.link)))
	promised := uint64(0)
	for _, l := range lanes[1:] {
		promised += l.Bandwidth.Guarantee.Of(f.link)
	}
	for _, l := range lanes {
		guarantee := l.Bandwidth.Guarantee.Of(f.link)
		if guarantee == 0 && l.isDefault && root > promised {
			guarantee = root - promised // what nobody was promised
		}
		// HTB has no class without a rate; 1/1000 of the link promises
		// nothing worth the name.
		guarantee = max(guarantee, f.link/1000)
		ceiling := l.Bandwidth.Ceiling.Of(f.link)
		if ceiling == 0 || ceiling > root {
			ceiling = root
		}
		f.want(f.class(classID(l.minor), rootClass, guarantee, ceiling, uint32(rank(l)-1)),
			device.PartBandwidth, l.Path,
			fmt.Sprintf("lane %s: %s guaranteed, at most %s, rank %d", l.Name, rateText(guarantee), rateText(ceiling), rank(l)))
	}
}

func classID(minor uint16) string { return fmt.Sprintf("1:%x", minor) }

// class sets the bursts to what the rate carries in 500 µs, at least two
// frames and at most 64 KiB. Smaller ones let a lane wait behind less, but
// every burst costs a timer: arming one takes 11 µs in a virtual machine, and
// with bursts of 25 µs the watchdog alone took 15 % of a processor at 1 Gbit/s.
// The quantum shares out what is left in proportion to the guarantees.
func (f *fit) class(id, parent string, rate, ceil uint64, prio uint32) device.Class {
	frame := uint32(f.dev.MTU + 14)
	burst := func(r uint64) uint32 { return max(uint32(min(r/8/2000, 64<<10)), 2*frame) }
	quantum := uint32(min(max(rate/8/1000, uint64(frame)), 60_000))
	return device.Class{
		Dev: f.dev.Name, ID: id, Parent: parent, Rate: rate, Ceil: ceil,
		Burst: burst(rate), CBurst: burst(ceil), Quantum: quantum, Prio: prio,
	}
}

// wantClassifier gives the members' packets their lane's class.
func (f *fit) wantClassifier(lanes []*placed) {
	if !f.uses(device.PartClassifier, RealClsactBPF) || len(f.wantedClasses()) == 0 {
		return
	}
	f.want(device.Qdisc{Dev: f.dev.Name, Parent: "clsact", Type: "clsact", Handle: "ffff:"},
		device.PartClassifier, "lanes", "where filters can be attached before the queue is chosen")
	filter := device.Filter{Dev: f.dev.Name, Parent: "egress", Pref: f.freePref(), Handle: filterHandle, Program: EgressProgram}
	f.want(filter, device.PartClassifier, "lanes", "looks each packet's flow up in a map and names its lane's class; later filters still run")
	for _, l := range lanes {
		for i := range l.Members {
			m := &l.Members[i]
			for _, match := range matches(m, f.in.Group.VLANs) {
				f.want(device.FilterEntry{Filter: filter.Key(), Match: match, Priority: classID(l.minor)},
					device.PartClassifier, m.Path, "packets of lane "+l.Name+" to its class")
			}
		}
	}
}

// wantedClasses are the HTB classes asked for so far.
func (f *fit) wantedClasses() (ids []string) {
	for _, w := range f.wants {
		if c, ok := w.Object.(device.Class); ok {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// freePref is the preference of our filter: the one it has, else the first
// that no other egress filter uses.
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

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// This file has the mqprio that the card implements (hw 1 mode channel). It gives each lane a
// traffic class with its own transmit queues. If the card's classes also have receive queues,
// flower filters on ingress steer packets to them.

// byCard reports whether the card's traffic classes map lanes to transmit queues.
func (f *fit) byCard() bool { return f.uses(device.PartMapper, ByMqprioChannel) }

// classes reports whether the lanes' queue sets are traffic classes of the card.
func (f *fit) classes() bool { return f.uses(device.PartQueueSet, ByMqprioChannel) }

// limits returns the limits of the driver's traffic classes. For an unknown driver, these are the
// kernel's limits.
func (f *fit) limits() device.ClassLimits {
	l, ok := device.FindClassLimits(f.dev.Driver)
	if !ok {
		l = device.ClassLimits{Driver: f.dev.Driver, Classes: priorities, Receive: true, Guarantee: true, RateUnit: 8,
			Source: "not known"}
	}
	return l
}

// noClasses returns the reason why the lanes cannot be traffic classes of the card, "" if they
// can.
func (f *fit) noClasses(lanes []*deviceLane) string {
	l := f.limits()
	from := fmt.Sprintf(" (%s)", l.Source)
	if len(lanes) > l.Classes {
		return fmt.Sprintf("%d lanes, %s has %d traffic classes beside the default%s", len(lanes)-1, l.Driver,
			l.Classes-1, from)
	}
	if f.uses(device.PartQueueSet, ByRSSContext) && !shaped(lanes) &&
		f.in.Group.Force[string(device.PartMapper)] == "" {
		return "nothing is shaped, and without traffic classes a reply leaves on the queue that received the request"
	}
	if why := oddCounts(lanes, l); why != "" {
		return why + from
	}
	sum := 0
	for _, p := range lanes {
		sum += len(p.queues)
	}
	if have := f.queuesBefore(); l.All && sum != max(have, sum) {
		return fmt.Sprintf("%s: %s has %d queues, and its classes must have all of "+
			"them%s", f.sumText(len(lanes[0].queues)),
			f.dev.Name, have, from)
	}
	if l.WholeFields && f.classes() {
		for _, p := range lanes[1:] {
			for i := range p.Members {
				for _, m := range f.matches(&p.Members[i]) {
					if m.LocalPort == 0 || !whole(m.Local, m.Family) || !whole(m.Remote, m.Family) {
						return fmt.Sprintf("%s: the card's filters compare whole addresses and need a local port%s",
							p.Members[i].Path, from)
					}
				}
			}
		}
	}
	return ""
}

// whole reports whether a prefix is a single address. The empty prefix, which matches every
// address, is also allowed.
func whole(prefix string, family int) bool {
	return prefix == "" || strings.HasSuffix(prefix, map[int]string{4: "/32", 6: "/128"}[family])
}

// oddCounts returns what is wrong with the classes' numbers of queues, "" if nothing. As in
// ice_validate_mqprio_qopt, only the largest number may be no power of two.
func oddCounts(lanes []*deviceLane, l device.ClassLimits) string {
	if !l.PowerOfTwo {
		return ""
	}
	odd, largest := 0, 0
	for i, p := range lanes {
		n := len(p.queues)
		largest = max(largest, n)
		switch {
		case bits.OnesCount(uint(n)) == 1:
		case i == 0 && l.FirstPowerOfTwo:
			return fmt.Sprintf("the default lane has %d queues, and %s wants a power of two there", n, l.Driver)
		case odd != 0 && odd != n:
			return fmt.Sprintf("lanes have %d and %d queues, but %s allows only one number that is not a power of two",
				odd, n, l.Driver)
		default:
			odd = n
		}
	}
	if odd != 0 && odd < largest {
		return fmt.Sprintf("one lane has %d queues and another has %d, but %s allows a number that is not a power of "+
			"two only if it is the largest", odd, largest, l.Driver)
	}
	return ""
}

// ofCard makes q an mqprio that the card implements, with the lanes' rates.
func (f *fit) ofCard(q *device.Qdisc, lanes []*deviceLane) {
	q.Mode = device.ModeChannel
	if !f.uses(device.PartBandwidth, ByMqprioRate) || !shaped(lanes) {
		return
	}
	unit := f.limits().RateUnit
	rates := func(of func(*deviceLane) uint64, key string) string {
		var out []string
		some := false
		for _, l := range lanes {
			asked := of(l)
			rate := asked / unit * unit
			if asked > 0 && rate == 0 {
				f.failf(lanePath(l.Lane, key), "%s is less than %s, the unit of rates on %s (%s)",
					device.RateText(asked), device.RateText(unit), f.dev.Name, f.limits().Source)
			}
			some = some || rate > 0
			out = append(out, strconv.FormatUint(rate, 10))
		}
		if !some {
			return ""
		}
		return strings.Join(out, " ")
	}
	q.MinRates = rates(f.guarantee, "guarantee")
	q.MaxRates = rates(f.ceiling, "ceiling")
}

// mqprioWanted reports whether an mqprio is in the plan already.
func (f *fit) mqprioWanted() bool {
	for _, w := range f.wants {
		if q, ok := w.Object.(device.Qdisc); ok && q.Type == "mqprio" {
			return true
		}
	}
	return false
}

// wantClasses makes the card's traffic classes. The driver makes new queues for them, so
// everything that belongs to these queues comes after the classes.
func (f *fit) wantClasses(lanes []*deviceLane) {
	if !f.byCard() || len(lanes) < 2 {
		return
	}
	if f.classes() {
		f.wantOn("hw-tc-offload", device.PartQueueSet, "the card takes flower filters")
	}
	f.wantOwnTable()
	f.wantMqprio(lanes)
	if n := len(f.dev.Rules) + len(f.dev.OtherRules); f.limits().TakesRules && n > 0 {
		f.notef("%s deletes all steering rules when the traffic classes are removed: rollback adds the present "+
			"%d again",
			f.limits().Driver, n)
	}
}

// wantOwnTable resets the default RSS table to the driver's own before the classes are made.
// While classes exist, the table is the default class's and cannot be set. If another program had
// set a table, rollback restores it after the classes are removed.
func (f *fit) wantOwnTable() {
	root, _ := f.present[device.Qdisc{Dev: f.dev.Name, Parent: "root"}.Key()].(device.Qdisc)
	for _, t := range f.dev.RSS {
		_, ours := f.owned[t.Key()]
		switch {
		case t.Context != 0 || !f.classes():
		case ours && root.Mode != "":
			f.want(t, device.PartQueueSet, "lanes", "as the driver has it")
		case t.Configured && root.Mode == "":
			t.Configured = false
			f.want(t, device.PartQueueSet, "lanes", "the driver's own table, over the default class's queues")
		}
	}
}

// wantFlowers steers the members' packets to their lane's class. It is called last.
func (f *fit) wantFlowers(lanes []*deviceLane) {
	if !f.uses(device.PartSteering, ByFlower) {
		return
	}
	f.want(device.Qdisc{Dev: f.dev.Name, Parent: "clsact", Type: "clsact", Handle: "ffff:"},
		device.PartSteering, "lanes", "the hook for filters of the card")
	for i, l := range lanes {
		for k := range l.Members {
			m := &l.Members[k]
			for _, match := range f.rules(m) {
				o := device.Flower{Dev: f.dev.Name, Match: match, Class: i + 1}
				if now, there := f.present[o.Key()].(device.Flower); there {
					if _, ours := f.owned[o.Key()]; !ours || now.Pref != 0 {
						f.failf(m.Path, "%s already has a flower filter for %s that niclane did not make (to "+
							"traffic class %d)", f.dev.Name, match, now.Class)
						continue
					}
				}
				f.want(o, device.PartSteering, m.Path, fmt.Sprintf("packets of lane %s to its traffic class %d", l.Name,
					i+1))
			}
		}
	}
}

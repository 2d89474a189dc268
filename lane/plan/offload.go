// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/device"
)

// This file has the HTB that the card implements (offload). It gives each lane, also the default
// lane, one extra transmit queue, numbered after those of the channels. The driver chooses the
// queue by the class in skb->priority (mellanox/mlx5/core/en/selq.c: mlx5e_select_queue). So the
// driver is the mapper, and nothing else may choose a queue for the lanes' packets. Packets
// without a class leave by the default lane's queue.

// byClass reports whether the card's HTB classes map lanes to transmit queues.
func (f *fit) byClass() bool { return f.uses(device.PartMapper, ByHTBOffload) }

// offloadLimits returns the driver's limits for an offloaded HTB. An unknown driver is assumed to
// keep rates as given.
func (f *fit) offloadLimits() device.OffloadLimits {
	l, ok := device.FindOffloadLimits(f.dev.Driver)
	if !ok {
		l = device.OffloadLimits{Driver: f.dev.Driver, CeilingUnit: 8, Source: "not known"}
	}
	return l
}

// noOffload returns the reason why the card's HTB classes should not map these lanes, "" if they
// should. asked and without are the inputs of the present choice.
func (f *fit) noOffload(lanes []*deviceLane, without map[string]string, asked []string) string {
	switch {
	case !f.byClass():
		return ""
	case !shaped(lanes):
		return "nothing is shaped, and without HTB classes a lane sends on all of its queues"
	case !f.uses(device.PartBandwidth, ByHTBOffload):
		return "another mechanism shapes the lanes"
	}
	// With an offloaded HTB, each lane sends on only one queue. A mechanism that is earlier in the
	// catalogue lets it send on all of its queues, so that mechanism is preferred.
	others := make(map[string]string, len(without)+1)
	for name, why := range without {
		others[name] = why
	}
	others[ByHTBOffload] = "left out to see"
	for _, c := range choose(f.st, f.dev, f.in.Group.Force, others, asked) {
		names := Mechanisms(device.PartBandwidth)
		if c.Part == device.PartBandwidth && c.Mechanism != "" &&
			slices.Index(names, c.Mechanism) < slices.Index(names, ByHTBOffload) {
			return fmt.Sprintf("%s gives what the lanes ask for, and leaves them all of their transmit queues",
				c.Mechanism)
		}
	}
	return ""
}

// wantOffload makes an HTB class of the card for each lane, under one root class. The first child
// class takes over the root class's queue. The default lane's class is therefore made first: the
// completions of that queue come to the first channel, which is the default lane's.
func (f *fit) wantOffload(lanes []*deviceLane) {
	limits := f.offloadLimits()
	root := f.link / limits.CeilingUnit * limits.CeilingUnit
	if root < limits.Shares || root == 0 {
		f.failf("globals.link-rate", "%s is less than %s, the unit of rates on %s (%s)",
			device.RateText(f.link), device.RateText(limits.CeilingUnit), f.dev.Name, limits.Source)
		return
	}
	f.wantOn("hw-tc-offload", device.PartBandwidth, "the card takes HTB classes")
	f.wantRoot(device.Qdisc{
		Dev: f.dev.Name, Parent: "root", Type: "htb", Handle: rootHandle, DefaultClass: defaultMinor, Offload: true,
	}, "the card's own scheduler, with a transmit queue for each lane")
	f.wantOffloaded(rootClass, rootHandle, root, root, "globals.link-rate", "the link's "+device.RateText(root))
	rates := f.offloadRates(lanes, root)
	for i, l := range lanes {
		ceiling := f.ceiling(l)
		if ceiling > 0 && ceiling < limits.CeilingUnit {
			f.failf(lanePath(l.Lane, "ceiling"), "%s is less than %s, the unit of ceilings on %s (%s)",
				device.RateText(ceiling), device.RateText(limits.CeilingUnit), f.dev.Name, limits.Source)
			continue
		}
		ceiling = ceiling / limits.CeilingUnit * limits.CeilingUnit
		if ceiling == 0 || ceiling > root {
			ceiling = root
		}
		f.wantOffloaded(classID(l.minor), rootClass, rates[i], ceiling, l.Path,
			fmt.Sprintf("lane %s: %s guaranteed, at most %s, by a transmit queue of its own", l.Name,
				device.RateText(rates[i]), device.RateText(ceiling)))
		f.wantFair(l)
	}
	f.notef("%s: each lane sends on one extra transmit queue of the card, after those of the channels, regardless "+
		"of its number of receive queues", ByHTBOffload)
}

// offloadRates returns the guarantees of the lanes' classes in bit/s. If the card divides the
// link into parts, a guarantee is rounded up to whole parts, so that the lane gets at least what
// the file says. A lane without a guarantee gets the lowest rate that a class can have.
func (f *fit) offloadRates(lanes []*deviceLane, root uint64) []uint64 {
	part := uint64(1)
	least := max(root/1000, 8)
	if n := f.offloadLimits().Shares; n > 0 {
		part = root / n
		least = part
	}
	rates := make([]uint64, len(lanes))
	var sum uint64
	for i, l := range lanes {
		asked := f.guarantee(l)
		rates[i] = max((asked+part-1)/part*part, least)
		sum += rates[i]
	}
	if sum > root {
		f.failf("lanes", "guarantees add up to %s of the %s of %s: the card divides the rate into parts of %s, and "+
			"gives every lane and the default lane at least one (%s)",
			device.RateText(sum), device.RateText(root), f.dev.Name, device.RateText(part), f.offloadLimits().Source)
		return rates
	}
	if lanes[0].Bandwidth.Guarantee.IsZero() {
		rates[0] += root - sum // the rate that no lane is guaranteed
	}
	return rates
}

// wantOffloaded adds an HTB class of the card to the plan. While the kernel makes such a class,
// it stops all queues of the device (net/sched/sch_htb.c: htb_graft_helper).
func (f *fit) wantOffloaded(id, parent string, rate, ceil uint64, cause, reason string) {
	c := device.Class{
		Dev: f.dev.Name, ID: id, Parent: parent, Rate: rate, Ceil: ceil, Burst: f.burst(rate), CBurst: f.burst(ceil),
		Offload: true,
	}
	f.wants = append(f.wants, want{
		Object: c, part: device.PartBandwidth, cause: cause, reason: reason, disruptive: f.present[c.Key()] == nil,
	})
}

// wantRoot adds a root htb qdisc to the plan. If the device has a different one already, it
// reports an error: the kernel cannot change it.
func (f *fit) wantRoot(q device.Qdisc, reason string) {
	if now, there := f.present[q.Key()].(device.Qdisc); there && !device.Equal(now, q) {
		if r, ours := f.owned[q.Key()]; ours {
			if last, ok := r.Last.(device.Qdisc); ok && !device.Equal(last, now) {
				f.failf("lanes", "another program replaced the root qdisc of %s (now %s %s; niclane made %s %s): "+
					"tc qdisc del dev %[1]s root, and apply again",
					f.dev.Name, now.Type, now.Handle, last.Type, last.Handle)
				return
			}
			f.failf("lanes", "the %s on %s would have to change (%s, now %s), which the kernel cannot do: "+
				"niclane rollback first", q.Type, f.dev.Name, q.Named(), now.Named())
			return
		}
	}
	f.wants = append(f.wants, want{Object: q, part: device.PartBandwidth, cause: "lanes", disruptive: true,
		reason: reason})
}

// offloaded reports whether the card has HTB classes now. While it has, its channels cannot be
// changed (mlx5: mlx5e_ethtool_set_channels).
func (f *fit) offloaded() bool {
	root, _ := f.present[device.Qdisc{Dev: f.dev.Name, Parent: "root"}.Key()].(device.Qdisc)
	return root.Offload
}

// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// machine checks conditions that lanes need and that are not objects of a plan: the device is up,
// pollers answer, the link is as fast as the rate that the lanes share, and processors are
// online. If a condition is not met, the finding is unknown and not drift, because apply cannot
// restore it.
func (c *check) machine() {
	online := c.now.OnlineCPUs()
	add := func(lane, dev string, part device.Part, want, is, meaning, repair string) {
		c.found = append(c.found, objectFinding{Finding: Finding{
			Severity: Unknown, Lane: lane, Device: dev, Part: part, Want: want, Found: is, Meaning: meaning,
			Repair: repair,
		}})
	}
	for _, name := range c.deviceNames() {
		d := c.now.Device(name)
		if d == nil {
			continue
		}
		if !d.Up {
			add("", name, device.PartQueueSet, "up", "down", "nothing arrives or leaves, in any lane",
				"ip link set dev "+name+" up")
		}
		for _, p := range d.Pollers {
			if _, ours := c.owned[p.Key()]; ours && p.Doing == device.PollerHung {
				lane := c.ownerOf(name, p.Queues[0])
				add(lane, name, device.PartPoller, "an answer", p.Doing,
					fmt.Sprintf("it is not known whether process %d polls queues %s of %s",
						p.PID, device.FormatCPUList(p.Queues), named(lane)),
					fmt.Sprintf("kill -KILL %d, then %s", p.PID, c.apply()))
			}
		}
		if was := c.was(name); was != nil && d.Speed > 0 && d.Speed < was.Speed && c.shares(name) > d.Speed {
			add("", name, device.PartBandwidth, mbits(was.Speed), mbits(d.Speed),
				"the link is now slower than the rate that the lanes share: packets wait in the card, where no "+
					"guarantee, ceiling or rank is kept", c.apply()+", if the file gives no link-rate")
		}
	}
	for _, l := range c.a.Lanes {
		gone := slices.DeleteFunc(slices.Clone(l.CPUs), func(id int) bool { return slices.Contains(online, id) })
		if len(gone) > 0 && l.Name != intent.DefaultLane {
			list := device.FormatCPUList(gone)
			add(l.Name, l.Device, device.PartProcessors, "processors "+device.FormatCPUList(l.CPUs), list+" offline",
				fmt.Sprintf("the lane's work on processors %s is done elsewhere, or not at all", list),
				"bring them online (chcpu --enable "+list+"), or "+c.apply())
		}
	}
}

// was returns the device's state right after the apply, nil if not known.
func (c *check) was(dev string) *device.Device {
	if c.a.State == nil {
		return nil
	}
	return c.a.State.Device(dev)
}

// shares returns the rate in bit/s that the lanes of a device share. It is the rate of HTB's root
// class, or the sum of the guarantees in the card; 0 for none.
func (c *check) shares(dev string) uint64 {
	var root, sum uint64
	for _, r := range c.a.Owned {
		if r.Last == nil || c.deviceOf(r.Last) != dev {
			continue
		}
		switch o := r.Last.(type) {
		case device.Class:
			root = max(root, o.Rate)
		case device.Shaper:
			sum += o.Min
		case device.Qdisc:
			for _, rate := range strings.Fields(o.MinRates) {
				n, _ := strconv.ParseUint(rate, 10, 64)
				sum += n
			}
		}
	}
	return max(root, sum)
}

func mbits(rate uint64) string { return fmt.Sprintf("%d Mbit/s", rate/1e6) }

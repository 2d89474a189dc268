// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

const (
	sysfsNet = "/sys/class/net/"
	procIRQ  = "/proc/irq/"
)

// deviceOf returns the name of the device that an object belongs to, "" if it belongs to the
// host.
func (c *check) deviceOf(o device.Object) string {
	if f, ok := o.(device.File); ok {
		if dev, _ := c.irqOf(f.Path); dev != "" {
			return dev
		}
	}
	return device.DeviceOf(o)
}

// irqOf returns the device and the interrupt to which a file /proc/irq/N/... belongs, now or
// right after the apply.
func (c *check) irqOf(path string) (dev string, irq device.IRQ) {
	rest, ok := strings.CutPrefix(path, procIRQ)
	if !ok {
		return "", device.IRQ{Queue: -1}
	}
	number, _, _ := strings.Cut(rest, "/")
	for _, st := range []*device.State{c.now, c.a.State} {
		if st == nil {
			continue
		}
		for _, d := range st.Devices {
			for _, i := range d.IRQs {
				if strconv.Itoa(i.Number) == number {
					return d.Name, i
				}
			}
		}
	}
	return "", device.IRQ{Queue: -1}
}

// queueOf returns the queue that an object belongs to, -1 if none.
func (c *check) queueOf(o device.Object) int {
	switch o := o.(type) {
	case device.Thread:
		return o.Queue
	case device.Poller:
		return o.Queues[0]
	case device.File:
		if _, irq := c.irqOf(o.Path); irq.Number != 0 {
			return irq.Queue
		}
	}
	return device.QueueOf(o)
}

// ownerOf returns the name of the lane that has a queue of a device, "" if none.
func (c *check) ownerOf(dev string, queue int) string {
	for _, l := range c.a.Lanes {
		if l.Device == dev && slices.Contains(l.Queues, queue) {
			return l.Name
		}
	}
	return ""
}

// reserved reports whether a receive queue belongs to a lane other than the default. It returns
// false if lanes have no receive queues of their own.
func (c *check) reserved(dev string, queue int) bool {
	l := c.ownerOf(dev, queue)
	return l != "" && l != intent.DefaultLane && c.reserves(dev)
}

// reserves reports whether the lanes of a device have receive queues of their own. They have if
// niclane owns an RSS context, or a rule or filter of the card.
func (c *check) reserves(dev string) bool {
	return slices.ContainsFunc(c.a.Owned, func(r plan.Record) bool {
		switch o := r.Last.(type) {
		case device.RSSTable:
			return o.Dev == dev && o.Context > 0
		case device.Rule:
			return o.Dev == dev
		case device.Flower:
			return o.Dev == dev
		}
		return false
	})
}

// steersAway reports whether receive packet steering moves the device's receive work away from
// the lanes' processors.
func (c *check) steersAway(dev string) bool {
	return slices.ContainsFunc(c.a.Owned, func(r plan.Record) bool {
		f, ok := r.Last.(device.File)
		return ok && c.deviceOf(f) == dev && strings.HasSuffix(f.Path, "/rps_cpus") &&
			f.Value != device.FormatMask(nil) && f.Value != "0"
	})
}

// redirects reports whether niclane's XDP program hands packets of the device to the lanes'
// processors.
func (c *check) redirects(dev string) bool {
	_, ours := c.owned[device.XDP{Dev: dev}.Key()]
	return ours
}

// lane returns the name of the first lane on the device for which the function is returns true,
// "" if there is none.
func (c *check) lane(dev string, is func(plan.FittedLane) bool) string {
	for _, l := range c.a.Lanes {
		if l.Device == dev && is(l) {
			return l.Name
		}
	}
	return ""
}

// nthLane returns the name of the lane that has the card's traffic class with this number, "" if
// none. The classes have the order of the lanes.
func (c *check) nthLane(dev string, class int) string {
	for _, l := range c.a.Lanes {
		if l.Device != dev {
			continue
		}
		if class == 0 {
			return l.Name
		}
		class--
	}
	return ""
}

// classLane returns the name of the lane that has the HTB class, "" if none.
func (c *check) classLane(dev, class string) string {
	return c.lane(dev, func(l plan.FittedLane) bool { return class != "" && l.Class == class })
}

func (c *check) contextLane(dev string, context int) string {
	return c.lane(dev, func(l plan.FittedLane) bool { return l.Context == context })
}

// laneOf returns the name of the lane that an object belongs to. It finds the lane by the object,
// otherwise by the config path that asked for the object. It returns "" if all lanes share the
// object.
func (c *check) laneOf(o device.Object, cause string) string {
	dev := c.deviceOf(o)
	if q := c.queueOf(o); q >= 0 {
		return c.ownerOf(dev, q)
	}
	switch o := o.(type) {
	case device.Class:
		return c.classLane(dev, o.ID)
	case device.FilterEntry:
		if l := c.classLane(dev, o.Priority); l != "" {
			return l
		}
	case device.RSSTable:
		return c.contextLane(dev, o.Context)
	case device.Rule:
		return c.target(o)
	}
	for _, l := range c.a.Lanes {
		rest, ok := strings.CutPrefix(cause, "lanes."+l.Name)
		if ok && (rest == "" || rest[0] == '.') {
			return l.Name
		}
	}
	return ""
}

// target returns the name of the lane to which a rule steers packets.
func (c *check) target(r device.Rule) string {
	if r.Context > 0 {
		return c.contextLane(r.Dev, r.Context)
	}
	return c.ownerOf(r.Dev, r.Queue)
}

// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// State compares the lanes of one file with the present state. First, it compares the objects
// that niclane owns. Then it looks for other objects that came or changed since the apply and
// that break a lane. Each difference is one finding. If objects are missing because of a
// difference, they have no finding of their own; With names them. A lane without differences gets
// a finding that says so.
func State(a Applied, now *device.State) []Finding {
	c := &check{a: a, now: now, present: now.Objects(), owned: map[string]plan.Record{}}
	if a.State != nil {
		c.before = a.State.Objects()
	}
	for _, r := range a.Owned {
		c.owned[r.Object().Key()] = r
	}
	c.unfinished()
	c.devices()
	c.slaves()
	c.counts()
	for _, r := range a.Owned {
		c.record(r)
	}
	c.foreign()
	c.machine()
	return append(c.folded(), c.fine()...)
}

// check is the comparison of one file's lanes with the present state.
type check struct {
	a       Applied
	now     *device.State
	present map[string]device.Object
	before  map[string]device.Object // right after the apply; nil: not known
	owned   map[string]plan.Record
	found   []objectFinding
}

// An objectFinding is a finding, and the object that it is about; nil for none.
type objectFinding struct {
	Finding
	object device.Object
	absent bool
	// follows is the key of another object, whose change has caused this finding. It is needed only
	// if this object still exists; "" for none.
	follows string
}

func (c *check) apply() string { return "niclane apply " + c.a.Config }

func (c *check) unfinished() {
	if c.a.Left > 0 {
		c.found = append(c.found, objectFinding{Finding: Finding{
			Severity: Drift, Key: "journal", Want: "all rolled back", Found: fmt.Sprintf("%d not rolled "+
				"back", c.a.Left),
			Meaning: "rollback did not finish: no lane is complete any more",
			Repair:  "niclane rollback " + c.a.Config + ", which says what prevents it, or " + c.apply(),
		}})
	}
	if c.a.Ended {
		return
	}
	c.found = append(c.found, objectFinding{Finding: Finding{
		Severity: Drift, Key: "journal", Want: "all steps made", Found: "apply did not finish",
		Meaning: "apply or its undoing was killed, left objects behind, or is still running: only part of the " +
			"lanes exists",
		Repair: c.apply() + ", or niclane rollback " + c.a.Config,
	}})
}

// deviceNames returns the names of the lanes' devices, in the order of the lanes.
func (c *check) deviceNames() []string {
	var names []string
	for _, l := range c.a.Lanes {
		if !slices.Contains(names, l.Device) {
			names = append(names, l.Device)
		}
	}
	return names
}

func (c *check) devices() {
	for _, name := range c.deviceNames() {
		if c.now.Device(name) != nil {
			continue
		}
		if where := c.a.Displaced[name]; where != "" {
			c.found = append(c.found, objectFinding{Finding: Finding{
				Severity: Drift, Device: name, Key: "device/" + name, Want: "present", Found: "absent",
				Meaning: where + ", and its lanes went with it",
				Repair: "move or rename it back, or niclane rollback " + c.a.Config + ", which finds it, then " +
					c.apply(),
			}, absent: true})
			continue
		}
		c.found = append(c.found, objectFinding{Finding: Finding{
			Severity: Drift, Device: name, Key: "device/" + name, Want: "present", Found: "absent",
			Meaning: "the device is gone, and its lanes with it",
			Repair: "niclane rollback " + c.a.Config + " clears the journal; " + c.apply() +
				" once there is a device of that name",
		}, absent: true})
	}
}

// counts adds a finding for each device whose number of queues has changed.
func (c *check) counts() {
	for _, name := range c.deviceNames() {
		d := c.now.Device(name)
		if d == nil {
			continue
		}
		rx, tx := c.queuesNeeded(name)
		have := d.TxQueues - d.Leaves() // without the queues that the card makes for HTB classes
		var was *device.Device
		if c.a.State != nil {
			was = c.a.State.Device(name)
		}
		if was != nil {
			rx, tx = was.RxQueues, was.TxQueues-was.Leaves()
		}
		grown := was != nil && (d.RxQueues > rx || have > tx)
		if d.RxQueues >= rx && have >= tx && !grown {
			continue
		}
		f := objectFinding{Finding: Finding{
			Severity: Drift, Device: name, Part: device.PartQueueSet, Key: queuesKey(name),
			Want: queueCount(rx, tx), Found: queueCount(d.RxQueues, have),
			Meaning: c.countMeaning(d, rx, tx), Repair: c.countRepair(name, was),
		}, absent: true}
		if have == tx && c.withoutNative(name) {
			f.follows = device.XDP{Dev: name}.Key()
		}
		c.found = append(c.found, f)
	}
}

// withoutNative reports whether niclane's XDP program no longer runs in the driver. Some drivers
// have extra receive queues and another RSS table only while a program is attached (virtio_net:
// virtnet_xdp_set).
func (c *check) withoutNative(dev string) bool {
	key := device.XDP{Dev: dev}.Key()
	mine, ok := c.owned[key].Last.(device.XDP)
	return ok && mine.Mode == "native" && !device.Equal(c.present[key], mine)
}

// queuesNeeded returns how many queues the lanes need: the highest queue of any lane plus one.
func (c *check) queuesNeeded(dev string) (rx, tx int) {
	for _, l := range c.a.Lanes {
		for _, q := range l.Queues {
			if l.Device == dev {
				rx = max(rx, q+1)
			}
		}
	}
	return rx, rx
}

func queuesKey(dev string) string { return "queues/" + dev }

func queueCount(rx, tx int) string { return fmt.Sprintf("%d receive, %d transmit", rx, tx) }

// record compares one object that niclane owns with its last value.
func (c *check) record(r plan.Record) {
	o := r.Object()
	now := c.present[o.Key()]
	if device.Equal(now, r.Last) {
		return
	}
	lane := c.laneOf(o, r.Cause)
	c.found = append(c.found, objectFinding{object: o, absent: now == nil, follows: c.clearedWith(o), Finding: Finding{
		Severity: Drift, Lane: lane, Device: c.deviceOf(o), Part: r.Part, Key: o.Key(),
		Want: text(r.Last, now), Found: text(now, r.Last),
		Meaning: c.meaning(o, r.Last, now, lane), Repair: c.repair(r.Last, now),
	}})
}

// clearedWith returns the key of the root qdisc if o is an XPS file that the kernel has cleared
// together with a change of the traffic classes (net/core/dev.c: netdev_reset_tc). Otherwise it
// returns "".
func (c *check) clearedWith(o device.Object) string {
	f, ok := o.(device.File)
	if !ok || !device.IsXPS(f.Path, c.deviceOf(f)) {
		return ""
	}
	root := device.Qdisc{Dev: c.deviceOf(f), Parent: "root"}.Key()
	if q, ok := c.owned[root].Last.(device.Qdisc); ok && q.Type == "mqprio" && !device.Equal(c.present[root], q) {
		return root
	}
	return ""
}

// repair says how to restore an object of niclane. If an object of another type is in its place,
// apply does not replace it, so another command must remove it first.
func (c *check) repair(want, found device.Object) string {
	switch o := found.(type) {
	case device.Qdisc:
		if mine, ok := want.(device.Qdisc); ok && mine.Type != o.Type && o.Parent != "clsact" {
			return fmt.Sprintf("tc qdisc del dev %s %s, then %s", o.Dev, qdiscPlace(o), c.apply())
		}
	case device.Filter:
		return fmt.Sprintf("tc filter del dev %s %s pref %d, then %s", o.Dev, o.Parent, o.Pref, c.apply())
	case device.XDP:
		return fmt.Sprintf("ip link set dev %s xdp off, then %s", o.Dev, c.apply())
	}
	return c.apply()
}

// folded returns the findings without those that are only a consequence of another finding. The
// other finding has their keys in With.
func (c *check) folded() []Finding {
	at := map[string]int{}
	for i, f := range c.found {
		at[f.Key] = i
	}
	var out []Finding
	for i, f := range c.found {
		root := c.root(i, at)
		if root == i {
			continue
		}
		c.found[root].With = append(c.found[root].With, f.Key)
		if f.follows == c.found[root].Key && f.Key == queuesKey(f.Device) {
			c.found[root].Meaning += fmt.Sprintf("; the driver's queues for the program are gone: %s, not %s",
				f.Found, f.Want)
		}
	}
	for i, f := range c.found {
		if c.root(i, at) == i {
			out = append(out, c.found[i].Finding)
			_ = f
		}
	}
	return out
}

// root returns the index of the finding that is the first cause of finding i. It goes from each
// finding to its cause, until one has no cause among the findings. If i has none, root returns i.
func (c *check) root(i int, at map[string]int) int {
	f := c.found[i]
	if j, ok := at[f.follows]; ok && f.follows != "" {
		return c.root(j, at)
	}
	if !f.absent || f.object == nil {
		return i
	}
	for _, key := range c.makers(f.object) {
		if j, ok := at[key]; ok && j != i {
			return c.root(j, at)
		}
	}
	return i
}

// makers returns the keys of the objects without which o disappears, nearest first.
func (c *check) makers(o device.Object) []string {
	dev := c.deviceOf(o)
	on := device.StandsOn(o)
	switch o.(type) {
	case device.NAPIConfig, device.Thread, device.Poller:
		on = append(on, device.Feature{Dev: dev, Name: "rx-gro"}.Key(), queuesKey(dev))
	case device.DriverParam: // Intel's own driver removes it with the classes
		on = append(on, device.Qdisc{Dev: dev, Parent: "root"}.Key())
	case device.Filter, device.XDP: // the XDP program has its own queues; losing queues does not remove it
	default:
		if len(on) == 0 {
			on = append(on, queuesKey(dev))
		}
	}
	return append(on, "device/"+dev)
}

// fine returns a finding for each lane that has no difference. It has the number of objects that
// were compared.
func (c *check) fine() []Finding {
	type scope struct{ lane, dev string }
	n, bad := map[scope]int{}, map[scope]bool{}
	var order []scope
	for _, l := range c.a.Lanes {
		order = append(order, scope{l.Name, l.Device})
	}
	for _, r := range c.a.Owned {
		s := scope{c.laneOf(r.Object(), r.Cause), c.deviceOf(r.Object())}
		if !slices.Contains(order, s) {
			order = append(order, s)
		}
		n[s]++
	}
	for _, f := range c.found {
		bad[scope{f.Lane, f.Device}] = true
	}
	var out []Finding
	for _, s := range order {
		if n[s] == 0 || bad[s] {
			continue
		}
		out = append(out, Finding{Severity: OK, Lane: s.lane, Device: s.dev,
			Meaning: objects(n[s]) + " as niclane left " + them(n[s])})
	}
	return out
}

func objects(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"
	"strings"
)

// slaves looks for devices that have left or joined the lanes' bond, and for a change of the
// slaves that the bond sends on.
func (c *check) slaves() {
	bond := c.a.Bond
	if bond == "" {
		return
	}
	add := func(what, want, is, meaning string) {
		c.found = append(c.found, objectFinding{Finding: Finding{
			// The finding names the bond and not the slave: a watch does not repair a device that is down,
			// and a slave that has left may be down.
			Severity: Drift, Device: bond, Key: "bond/" + bond + "/" + what, Want: want, Found: is, Meaning: meaning,
			Repair: c.apply(),
		}})
	}
	names := c.deviceNames()
	for _, name := range names {
		if d := c.now.Device(name); d != nil && d.Master != bond { // a missing device has a finding already
			add(name, "a slave of "+bond, "no slave of it", "lanes stay on "+name+", which carries nothing of "+bond)
		}
	}
	for i := range c.now.Devices {
		if d := &c.now.Devices[i]; d.Master == bond && !slices.Contains(names, d.Name) {
			add(d.Name, "no slave of "+bond+", as when the lanes were applied", "a slave of it",
				"packets that arrive or leave by "+d.Name+" are in no lane")
		}
	}
	was, now := c.sharing()
	// If the bond sends on no slave, the lanes' rates have no meaning.
	if len(was) > 0 && len(now) > 0 && !slices.Equal(was, now) {
		want, is := strings.Join(was, " and "), strings.Join(now, " and ")
		add("rates", bond+" sends by "+want, "by "+is, "the lanes' rates are shared out as if it sent by "+want)
	}
}

// sharing returns two lists: the slaves that shared the lanes' rates at the apply, and those that
// the bond sends on now. Both are ascending. They have only devices of the lanes that are still
// slaves.
func (c *check) sharing() (was, now []string) {
	names := c.deviceNames()
	slices.Sort(names)
	for _, name := range names {
		d := c.now.Device(name)
		if d == nil || d.Master != c.a.Bond {
			continue
		}
		if slices.Contains(c.a.Sharing, name) {
			was = append(was, name)
		}
		if !d.Idle {
			now = append(now, name)
		}
	}
	return was, now
}

// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"
	"strings"
)

// slaves looks for devices that have left the bond that the lanes span, those
// that came to it, and those by which it sends no more, or again.
func (c *check) slaves() {
	bond := c.a.Bond
	if bond == "" {
		return
	}
	add := func(what, want, is, meaning string) {
		c.found = append(c.found, objectFinding{Finding: Finding{
			// Of the bond: what is wrong with one that has left, and is
			// down by now, keeps nobody from repairing it.
			Severity: Drift, Device: bond, Key: "bond/" + bond + "/" + what, Want: want, Found: is, Meaning: meaning,
			Repair: c.apply(),
		}})
	}
	names := c.deviceNames()
	for _, name := range names {
		if d := c.now.Device(name); d != nil && d.Master != bond { // one that is gone was said to be
			add(name, "a slave of "+bond, "none of its", "lanes stay on "+name+", which carries nothing of "+bond)
		}
	}
	for i := range c.now.Devices {
		if d := &c.now.Devices[i]; d.Master == bond && !slices.Contains(names, d.Name) {
			add(d.Name, "no slave of "+bond+", as when the lanes were applied", "a slave of it",
				"what arrives and leaves by "+d.Name+" is in no lane")
		}
	}
	was, now := c.sharing()
	// Where it sends by none, there is nothing to share out.
	if len(was) > 0 && len(now) > 0 && !slices.Equal(was, now) {
		want, is := strings.Join(was, " and "), strings.Join(now, " and ")
		add("rates", bond+" sends by "+want, "by "+is, "the lanes' rates are shared out as if it sent by "+want)
	}
}

// sharing are the slaves over which the lanes' rates were shared out, and those
// by which the bond sends now, both ascending: of those that the lanes have and
// that are its slaves still.
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

// SPDX-License-Identifier: Apache-2.0

package verify

import "slices"

// slaves looks for devices that have left the bond that the lanes span, and
// those that came to it.
func (c *check) slaves() {
	bond := c.a.Bond
	if bond == "" {
		return
	}
	add := func(dev, want, is, meaning string) {
		c.found = append(c.found, found{Finding: Finding{
			// Of the bond: what is wrong with one that has left, and is
			// down by now, keeps nobody from repairing it.
			Severity: Drift, Device: bond, Key: "bond/" + bond + "/" + dev, Want: want, Found: is, Meaning: meaning, Repair: c.apply(),
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
			add(d.Name, "no slave of "+bond+", as when the lanes were applied", "a slave of it", "what arrives and leaves by "+d.Name+" is in no lane")
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// Occupants returns the objects below a qdisc or class that would be removed with it: classes,
// filters, and qdiscs that a user made.
func (c *Client) Occupants(o device.Object) ([]string, error) {
	switch o := o.(type) {
	case device.Qdisc:
		if o.Type == "clsact" {
			return c.filterOccupants(o.Dev, clsactIngress, clsactEgress)
		}
		h, err := ParseHandle(o.Handle)
		if err != nil {
			return nil, err
		}
		in := func(r reply) bool { return r.handle>>16 == h>>16 }
		who, err := c.treeOccupants(o.Dev, h, in)
		if o.Type != "htb" {
			// No user made these classes: they stand for the device's queues, the flows of a qdisc,
			// or the only class of a token bucket.
			who = slices.DeleteFunc(who, func(w string) bool { return strings.HasPrefix(w, "class ") })
		}
		return who, err
	case device.Class:
		h, err := ParseHandle(o.ID)
		if err != nil {
			return nil, err
		}
		return c.treeOccupants(o.Dev, h, func(r reply) bool { return r.parent == h })
	}
	return nil, nil
}

func (c *Client) filterOccupants(dev string, parents ...uint32) ([]string, error) {
	var out []string
	for _, p := range parents {
		reps, err := c.filters(dev, p)
		if err != nil {
			return nil, err
		}
		for _, r := range reps {
			f, err := filterOf(dev, FormatHandle(p), r)
			if err != nil {
				return nil, err
			}
			words := fmt.Sprintf("%s filter pref %d handle %#x at %s", f.Type, f.Pref, f.Handle, hookName(p))
			if f.Name != "" {
				words += " (" + f.Name + ")"
			}
			out = append(out, words)
		}
	}
	return out, nil
}

func hookName(parent uint32) string {
	switch parent {
	case clsactIngress:
		return "ingress"
	case clsactEgress:
		return "egress"
	}
	return FormatHandle(parent)
}

// treeOccupants returns the occupants of the qdisc or class h: the classes that in accepts,
// filters on h, and qdiscs on h and on these classes.
func (c *Client) treeOccupants(dev string, h uint32, in func(reply) bool) ([]string, error) {
	var out []string
	classes, err := c.classes(dev)
	if err != nil {
		return nil, err
	}
	parents := map[string]bool{FormatHandle(h): true}
	for _, r := range classes {
		if in(r) && r.handle != h {
			out = append(out, "class "+FormatHandle(r.handle))
			parents[FormatHandle(r.handle)] = true
		}
	}
	qdiscs, err := c.Qdiscs(dev)
	if err != nil {
		return nil, err
	}
	for _, q := range qdiscs {
		if q.Handle != FormatHandle(0) && parents[q.Parent] {
			out = append(out, fmt.Sprintf("%s %s at %s", q.Type, q.Handle, q.Parent))
		}
	}
	filters, err := c.filterOccupants(dev, h)
	return append(out, filters...), err
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"fmt"

	"github.com/niclane/niclane/lane/device"
)

// Read returns the present value of the object with o's identity, or nil if there
// is none. If the device does not exist, the error is ENODEV.
func (c *Client) Read(o device.Object) (device.Object, error) {
	switch o := o.(type) {
	case device.Filter:
		c.uses = maxUses // a reader wants the present state: look the program up again
		return c.readFilter(o)
	case device.FilterEntry:
		return c.readEntry(o)
	case device.FilterDefault:
		return c.readDefault(o)
	case device.FilterLink:
		return c.readLink(o)
	case device.FilterShare:
		return c.readShare(o)
	case device.Tunnels:
		return c.readTunnels(o)
	case device.XDP:
		c.usesXDP = maxUses
		return c.readXDP(o)
	case device.CPUQueue:
		return c.readCPUQueue(o)
	case device.CPUThread:
		return c.readCPUThread(o)
	case device.CPULane:
		return c.readCPULane(o)
	case device.XDPEntry:
		return c.readXDPEntry(o)
	}
	return nil, fmt.Errorf("object kind %q is not BPF's", o.Kind())
}

// few: for up to this number of objects, ReadMany looks up each entry alone; for more, it
// lists all entries. A pod has two entries, and there may be a hundred pods.
const few = 8

// ReadMany returns what Read returns, for each object. For many objects, it lists the entries
// of a program only once. It searches the kernel threads of a device only once.
func (c *Client) ReadMany(objects []device.Object) ([]device.Object, error) {
	out := make([]device.Object, len(objects))
	lists := map[string]map[string]device.Object{} // by program, then by key
	for i, o := range objects {
		var list string
		var read func() ([]device.Object, error)
		entry := true
		switch o := o.(type) {
		case device.FilterEntry:
			list = o.Filter
			read = func() ([]device.Object, error) { return objectsOf(c.entriesOf(o.Filter)) }
		case device.XDPEntry:
			list = device.XDP{Dev: o.Dev}.Key()
			read = func() ([]device.Object, error) { return objectsOf(c.xdpEntriesOf(o.Dev)) }
		case device.CPUThread:
			list, entry = "threads of "+o.Dev, false
			read = func() ([]device.Object, error) { return objectsOf(c.cpuThreadsOf(o.Dev)) }
		}
		if read == nil || entry && len(objects) <= few {
			var err error
			if out[i], err = c.Read(o); err != nil {
				return nil, err
			}
			continue
		}
		if lists[list] == nil {
			all, err := read()
			if err != nil {
				return nil, err
			}
			lists[list] = map[string]device.Object{}
			for _, a := range all {
				lists[list][a.Key()] = a
			}
		}
		if a, ok := lists[list][o.Key()]; ok {
			out[i] = a
		}
	}
	return out, nil
}

// objectOf returns *o, or nil if o is nil.
func objectOf[T device.Object](o *T, err error) (device.Object, error) {
	if o == nil || err != nil {
		return nil, err
	}
	return *o, nil
}

func objectsOf[T device.Object](list []T, err error) ([]device.Object, error) {
	out := make([]device.Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out, err
}

// Write changes an object from old to next; nil means absent. Removing a filter
// removes its entries. Removing an XDP program removes its queues, their threads,
// its lanes and its entries.
func (c *Client) Write(old, next device.Object) error {
	o := cmp.Or(next, old)
	var err error
	switch o := o.(type) {
	case device.Filter:
		return c.writeFilter(old, next, o)
	case device.XDP:
		return c.writeXDP(old, next, o)
	case device.FilterEntry:
		err = c.writeEntry(old, next, o)
	case device.FilterDefault:
		err = c.writeDefault(next, o)
	case device.FilterLink:
		err = c.writeLink(next, o)
	case device.FilterShare:
		err = c.writeShare(next, o)
	case device.Tunnels:
		err = c.writeTunnels(next, o)
	case device.CPUQueue:
		err = c.writeCPUQueue(old, next, o)
	case device.CPUThread:
		err = c.writeCPUThread(next, o)
	case device.CPULane:
		err = c.writeCPULane(old, next, o)
	case device.XDPEntry:
		err = c.writeXDPEntry(old, next, o)
	default:
		return fmt.Errorf("object kind %q is not BPF's", o.Kind())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.Key(), err)
	}
	return nil
}

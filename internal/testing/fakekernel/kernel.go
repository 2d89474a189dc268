// SPDX-License-Identifier: Apache-2.0

// Package fakekernel is a kernel in memory, for tests. It holds the objects of a device.State. It
// refuses what a real kernel would refuse, for example a class without its qdisc, or a rule to a
// context that does not exist. If an object is removed, it also removes what a real kernel would
// remove. At a chosen write, it can return an error, kill the caller or lose a device. It can print
// its state. It does not know of plans or time.
package fakekernel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A Kernel holds its objects in a device.State. If a write changes more than one object, State.Put
// decides what else changes. A Kernel is not safe for concurrent use.
type Kernel struct {
	st   *device.State
	objs map[string]device.Object // objects of st, by key
	// foreign has descriptions of foreign things that are no objects, such as u32 filters. The key is
	// that of the object to which a thing belongs.
	foreign map[string][]string
	// classParams are the devices whose driver makes its parameters together with the classes.
	classParams map[string]bool

	writes int
	fault  Fault
}

// New returns a kernel with the state st.
func New(st *device.State) *Kernel {
	k := &Kernel{st: st.Clone(), objs: st.Objects(), foreign: map[string][]string{}, classParams: map[string]bool{}}
	for _, d := range st.Devices {
		k.classParams[d.Name] = d.InspectFlag() != "" && len(d.DriverParams) == 0
		for _, f := range d.Filters {
			if f.Type != "bpf" {
				k.Foreign("qdisc/"+d.Name+"/clsact", fmt.Sprintf("%s filter pref %d handle %#x (%s)", f.Type, f.Pref,
					f.Handle, f.Parent))
			}
		}
	}
	return k
}

// Put sets o without any check, as a foreign program would.
func (k *Kernel) Put(o device.Object) {
	k.st.Put(k.objs[o.Key()], o)
	k.objs = k.st.Objects()
}

// put changes an object, and also the other objects that State.Put changes with it. nil means
// absent.
func (k *Kernel) put(old, next device.Object) {
	k.st.Put(old, next)
	o := cmp.Or(next, old)
	switch {
	case !alone(o):
		k.objs = k.st.Objects()
	case next == nil:
		delete(k.objs, o.Key())
	default:
		k.objs[o.Key()] = next
	}
}

// alone reports whether a change of o changes no other object. If so, put need not list all objects
// again. That listing takes most of the time of a test with hundreds of kills.
func alone(o device.Object) bool {
	switch o := o.(type) {
	case device.Class, device.RSSTable, device.CPULane, device.CgroupClass, device.CgroupPriority,
		device.Coalesce, device.Thread, device.Filter, device.FilterDefault, device.FilterLink, device.FilterShare,
		device.Tunnels, device.Shaper, device.XDP:
		return true
	case device.Qdisc:
		return o.Type != "mqprio"
	case device.File:
		return device.QueueOf(o) >= 0
	}
	return device.Matches(o)
}

// Foreign adds a foreign thing that is no object, such as a u32 filter, to the object with the
// given key.
func (k *Kernel) Foreign(key, words string) { k.foreign[key] = append(k.foreign[key], words) }

// Vanish removes a device, everything on it, and its interrupts.
func (k *Kernel) Vanish(dev string) {
	if d := k.st.Device(dev); d != nil {
		for _, i := range d.IRQs {
			delete(k.st.Files, device.IRQPath(i.Number))
		}
	}
	for key, o := range k.objs {
		if device.DeviceOf(o) == dev {
			delete(k.foreign, key)
			k.st.Put(o, nil)
		}
	}
	k.st.Devices = slices.DeleteFunc(k.st.Devices, func(d device.Device) bool { return d.Name == dev })
	k.objs = k.st.Objects()
}

// Objects returns the present objects by key.
func (k *Kernel) Objects() map[string]device.Object { return maps.Clone(k.objs) }

// State returns a copy of the state.
func (k *Kernel) State() *device.State { return k.st.Clone() }

// Clone returns an independent copy of the kernel, without its fault.
func (k *Kernel) Clone() *Kernel {
	c := &Kernel{st: k.st.Clone(), objs: maps.Clone(k.objs), foreign: map[string][]string{},
		classParams: maps.Clone(k.classParams)}
	for key, words := range k.foreign {
		c.foreign[key] = slices.Clone(words)
	}
	return c
}

// String prints the whole state, with one line for each object. Equal states give equal texts.
func (k *Kernel) String() string {
	var lines []string
	for key, o := range k.objs {
		b, err := device.MarshalObject(o)
		if err != nil {
			b = []byte(err.Error())
		}
		lines = append(lines, key+" "+string(b))
	}
	for key, words := range k.foreign {
		for _, w := range words {
			lines = append(lines, key+" carries "+w)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// Read implements apply.Kernel.
func (k *Kernel) Read(o device.Object) (device.Object, error) {
	if dev := device.DeviceOf(o); dev != "" && k.st.Device(dev) == nil && o.Kind() != (device.File{}).Kind() {
		return nil, fmt.Errorf("%s: %w", dev, unix.ENODEV)
	}
	return k.objs[o.Key()], nil
}

// Write implements apply.Kernel. Unlike a real kernel, it returns an error if old is not the
// present value: then the caller has a wrong idea of the state.
func (k *Kernel) Write(old, next device.Object) error {
	if old == nil && next == nil {
		return fmt.Errorf("write of nothing: %w", unix.EINVAL)
	}
	o := cmp.Or(next, old)
	n := k.writes
	k.writes++
	if err := k.before(n); err != nil {
		return err
	}
	present, err := k.Read(o)
	if err != nil {
		return err
	}
	if dev := device.DeviceOf(o); present == nil && old != nil && dev != "" && k.st.Device(dev) == nil {
		return fmt.Errorf("%s: %w", o.Key(), unix.ENODEV) // the file belonged to a device that no longer exists
	}
	if !device.Equal(present, old) {
		return fmt.Errorf("%s: written as if it were %v, but it is %v: %w", o.Key(), old, present, unix.EPROTO)
	}
	if err := k.write(old, next); err != nil {
		return err
	}
	return k.after(n)
}

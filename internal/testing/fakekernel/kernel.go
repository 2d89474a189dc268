// SPDX-License-Identifier: Apache-2.0

// Package fakekernel is a kernel in memory for tests: it holds the objects of
// a device.State, refuses what a kernel would refuse (a class without its
// qdisc, a rule to a context that is not there), removes with an object what
// the kernel removes with it, and fails, dies or loses a device at a chosen
// write. It prints itself. It knows nothing of plans, and nothing of time.
package fakekernel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"golang.org/x/sys/unix"
)

// A Kernel holds objects by key. It is not safe for concurrent use.
type Kernel struct {
	objs map[string]device.Object
	// foreign are things that are no objects, as u32 filters: what they
	// hang on, and their words.
	foreign map[string][]string
	devs    map[string]bool
	cpus    []int
	// capacity is the size of a device's rule table, 0 for no limit.
	capacity map[string]int
	// classes are the devices whose traffic classes own receive queues.
	classes map[string]bool

	writes int
	fault  Fault
}

// New returns a kernel in the state st.
func New(st *device.State) *Kernel {
	k := &Kernel{
		objs:     st.Objects(),
		foreign:  map[string][]string{},
		devs:     map[string]bool{},
		cpus:     st.OnlineCPUs(),
		capacity: map[string]int{},
		classes:  map[string]bool{},
	}
	for _, d := range st.Devices {
		k.devs[d.Name] = true
		k.capacity[d.Name] = d.RuleCapacity
		limits, _ := device.FindClassLimits(d.Driver)
		k.classes[d.Name] = limits.Receive
		for _, f := range d.Filters {
			if f.Type != "bpf" {
				k.Foreign("qdisc/"+d.Name+"/clsact", fmt.Sprintf("%s filter pref %d handle %#x (%s)", f.Type, f.Pref, f.Handle, f.Parent))
			}
		}
	}
	return k
}

// Put makes o present, as somebody else would: unchecked.
func (k *Kernel) Put(o device.Object) { k.objs[o.Key()] = o }

// Drop makes o absent, as somebody else would: unchecked.
func (k *Kernel) Drop(o device.Object) { delete(k.objs, o.Key()) }

// Foreign hangs something that is no object on the object with the given key.
func (k *Kernel) Foreign(key, words string) { k.foreign[key] = append(k.foreign[key], words) }

// Vanish removes a device with everything on it.
func (k *Kernel) Vanish(dev string) {
	delete(k.devs, dev)
	for key, o := range k.objs {
		if device.DeviceOf(o) == dev {
			delete(k.objs, key)
			delete(k.foreign, key)
		}
	}
}

// Objects returns the present objects by key.
func (k *Kernel) Objects() map[string]device.Object { return maps.Clone(k.objs) }

// Clone returns an independent copy without the fault.
func (k *Kernel) Clone() *Kernel {
	c := *k
	c.objs, c.devs = maps.Clone(k.objs), maps.Clone(k.devs)
	c.foreign = map[string][]string{}
	for key, words := range k.foreign {
		c.foreign[key] = slices.Clone(words)
	}
	c.writes, c.fault = 0, Fault{}
	return &c
}

// String prints the whole state, one object a line, the same for the same
// state.
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
	if dev := device.DeviceOf(o); dev != "" && !k.devs[dev] && o.Kind() != (device.File{}).Kind() {
		return nil, fmt.Errorf("%s: %w", dev, unix.ENODEV)
	}
	return k.objs[o.Key()], nil
}

// Write implements apply.Kernel. It insists that old is the present value,
// which a kernel does not: a caller that says otherwise has lost track.
func (k *Kernel) Write(old, new device.Object) error {
	if old == nil && new == nil {
		return fmt.Errorf("write of nothing: %w", unix.EINVAL)
	}
	o := new
	if o == nil {
		o = old
	}
	n := k.writes
	k.writes++
	if err := k.before(n); err != nil {
		return err
	}
	present, err := k.Read(o)
	if err != nil {
		return err
	}
	if dev := device.DeviceOf(o); present == nil && old != nil && dev != "" && !k.devs[dev] {
		return fmt.Errorf("%s: %w", o.Key(), unix.ENODEV) // its file
	}
	if !device.Equal(present, old) {
		return fmt.Errorf("%s: written as if it were %v, but it is %v: %w", o.Key(), old, present, unix.EPROTO)
	}
	if err := k.write(old, new); err != nil {
		return err
	}
	return k.after(n)
}

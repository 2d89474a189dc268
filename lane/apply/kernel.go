// SPDX-License-Identifier: Apache-2.0

// Package apply is the only package that writes to the kernel. It runs the
// steps of a plan, reads each object back, records the progress in the journal,
// and undoes its steps if one fails. It decides nothing: the plan says what to
// write, the journal what to restore. It refuses to change an object that is
// not as the plan found it, to remove an object that other programs' objects
// depend on, and to work beside another applier.
package apply

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A Kernel reads and writes single objects.
type Kernel interface {
	// Read returns the present value of the object with o's identity, nil if
	// there is none. For a device that does not exist, it returns unix.ENODEV
	// or an absent object.
	Read(o device.Object) (device.Object, error)
	// Write changes the object from old, its present value, to next. nil means
	// absent; at most one is nil.
	Write(old, next device.Object) error
}

// A ManyReader reads objects of one kind in fewer calls than one each.
type ManyReader interface {
	// ReadMany returns the result of Read for each object, in their order.
	ReadMany(objects []device.Object) ([]device.Object, error)
}

// An Occupier lists the objects that depend on an object, as one text each:
// filters on a clsact qdisc, classes of an HTB. The kernel removes these
// together with the object, so apply does not remove an occupied object.
type Occupier interface {
	Occupants(o device.Object) ([]string, error)
}

// An Evictor removes those occupants of an object that the kernel does not remove with it:
// rules that lead to an RSS context. who is a part of the result of Occupants. evicted are
// the removed ones, also with an error.
type Evictor interface {
	Evict(o device.Object, who []string) (evicted []string, err error)
}

// implicit reports whether the kernel makes and removes the object together
// with another one. Creating it then changes the kernel's value, and removing
// it is left to the other object.
func implicit(o device.Object) bool { return maker(o) != nil || queueDevice(o) != "" }

// maker returns the object that an implicit one comes and goes with at every
// change, nil for all others. Only its identity is filled in.
func maker(o device.Object) device.Object {
	switch t := o.(type) {
	case device.Thread:
		return device.NAPIConfig{Dev: t.Dev, Queue: t.Queue}
	case device.CPUThread:
		return device.CPUQueue{Dev: t.Dev, CPU: t.CPU}
	}
	return nil
}

// queueDevice returns the device of an object that comes and goes with a queue
// when the number of channels changes; "" for all others.
func queueDevice(o device.Object) string {
	if device.QueueOf(o) < 0 {
		return ""
	}
	return device.DeviceOf(o)
}

// another reports whether the present object has replaced the written one: the kernel never
// changes a qdisc's kind or handle, or a program's name. A program whose name could not be
// read may be the written one.
func another(present, written device.Object) bool {
	switch p := present.(type) {
	case device.Qdisc:
		w, ok := written.(device.Qdisc)
		return ok && (p.Type != w.Type || p.Handle != w.Handle)
	case device.Filter:
		w, ok := written.(device.Filter)
		return ok && p.Program != "" && p.Program != w.Program
	case device.XDP:
		w, ok := written.(device.XDP)
		return ok && p.Program != "" && p.Program != w.Program
	}
	return false
}

// vanished reports whether err says that the device is gone.
func vanished(err error) bool { return errors.Is(err, unix.ENODEV) }

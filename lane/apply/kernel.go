// SPDX-License-Identifier: Apache-2.0

// Package apply is the only package that writes to the kernel. It runs the steps of a plan, reads
// each object back, records the progress in the journal, and undoes its steps if one fails. It
// decides nothing: the plan says what to write, the journal what to restore. It refuses to change
// an object that is not as the plan found it, to remove an object on which objects of other
// programs depend, and to run while another process applies.
package apply

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A Kernel reads and writes single objects.
type Kernel interface {
	// Read returns the present value of the object with o's key, nil if it does not exist. If its
	// device does not exist, Read returns unix.ENODEV or nil.
	Read(o device.Object) (device.Object, error)
	// Write changes the object from old, its present value, to next. nil means that it does not
	// exist; only one of the two may be nil.
	Write(old, next device.Object) error
}

// A ManyReader can read several objects of one kind with fewer calls than one for each.
type ManyReader interface {
	// ReadMany returns the result of Read for each object, in their order.
	ReadMany(objects []device.Object) ([]device.Object, error)
}

// An Occupier lists the objects that depend on an object, such as filters on a clsact qdisc or
// classes of an HTB. Each is described by one text. The kernel removes them together with the
// object, so apply does not remove an object that has any.
type Occupier interface {
	Occupants(o device.Object) ([]string, error)
}

// An Evictor removes objects that depend on an object and that the kernel does not remove with
// it, such as rules that lead to an RSS context. who is a part of the result of Occupants.
// evicted are the texts of the removed objects, even if there is an error.
type Evictor interface {
	Evict(o device.Object, who []string) (evicted []string, err error)
}

// implicit reports whether the kernel makes and removes the object together with another one. To
// make such an object, apply changes the value that the kernel gave it; apply does not remove it,
// because the kernel does so with the other object.
func implicit(o device.Object) bool { return maker(o) != nil || queueDevice(o) != "" }

// maker returns the object that makes o: with every change of that object, the kernel makes or
// removes o. It returns nil if there is none. Only the fields of the key are set.
func maker(o device.Object) device.Object {
	switch t := o.(type) {
	case device.Thread:
		return device.NAPIConfig{Dev: t.Dev, Queue: t.Queue}
	case device.CPUThread:
		return device.CPUQueue{Dev: t.Dev, CPU: t.CPU}
	case device.DriverParam: // Intel's own driver makes the parameters with the classes
		return device.Qdisc{Dev: t.Dev, Parent: "root"}
	}
	return nil
}

// queueDevice returns the device of an object that belongs to a queue. If the number of channels
// changes, the kernel makes and removes such objects. It returns "" for all others.
func queueDevice(o device.Object) string {
	if device.QueueOf(o) < 0 {
		return ""
	}
	return device.DeviceOf(o)
}

// another reports whether another program has replaced the object that niclane has written. The
// kernel never changes a qdisc's type or handle, or a program's name, so another value of these
// means another object. A program whose name could not be read may be niclane's.
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

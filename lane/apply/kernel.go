// SPDX-License-Identifier: Apache-2.0

// Package apply is the only writer: it runs the steps of a plan, reads each
// object back, records the progress in the journal, and undoes what it did
// when something fails. It decides nothing: what is to be written is in the
// plan, what is to be restored in the journal. It refuses to change an object
// that is not as the plan found it, to remove what somebody else's objects
// hang on, and to work while another applier does.
package apply

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A Kernel reads and writes single objects.
type Kernel interface {
	// Read returns the present value of the object with o's identity, nil
	// if there is none. A device that does not exist is unix.ENODEV or an
	// absent object.
	Read(o device.Object) (device.Object, error)
	// Write brings the object from old, its present value, to new; nil
	// means absent, and at most one is nil.
	Write(old, next device.Object) error
}

// A ManyReader reads objects of one kind in fewer calls than one each.
type ManyReader interface {
	// ReadMany returns what Read does for each object, in their order.
	ReadMany(objects []device.Object) ([]device.Object, error)
}

// An Occupier can say what hangs on an object, in words, one string each:
// filters on a clsact qdisc, classes of an HTB. The kernel removes those
// together with the object, so apply does not remove an object that is
// occupied.
type Occupier interface {
	Occupants(o device.Object) ([]string, error)
}

// An Evictor removes those occupants of an object that the kernel does not remove with
// it: rules that lead to an RSS context. who are some of what Occupants returned; evicted
// are those that it removed, also where it returns an error.
type Evictor interface {
	Evict(o device.Object, who []string) (evicted []string, err error)
}

// implicit reports whether the kernel makes and removes the object together
// with another one. Its creation is then a change of what the kernel made, and
// its removal nothing: the other object's takes care of it.
func implicit(o device.Object) bool { return maker(o) != nil || queueDevice(o) != "" }

// maker returns the object with which an implicit one comes and goes at every
// change of its, nil for all others. Only its identity is filled in.
func maker(o device.Object) device.Object {
	switch t := o.(type) {
	case device.Thread:
		return device.NAPIConfig{Dev: t.Dev, Queue: t.Queue}
	case device.CPUThread:
		return device.CPUQueue{Dev: t.Dev, CPU: t.CPU}
	}
	return nil
}

// queueDevice returns the device of an object that comes and goes with one of
// its queues, when the number of channels changes; "" for all others.
func queueDevice(o device.Object) string {
	if device.QueueOf(o) < 0 {
		return ""
	}
	return device.DeviceOf(o)
}

// another reports whether the object that is there replaced the one that was written: the
// kernel changes neither a qdisc's kind or handle nor a program's name. A program whose
// name could not be read may be the one that was written.
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

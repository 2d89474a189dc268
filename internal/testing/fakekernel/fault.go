// SPDX-License-Identifier: Apache-2.0

package fakekernel

import "golang.org/x/sys/unix"

// A When says whether a fault occurs before or after a write takes effect.
type When int

// The values of When.
const (
	Before When = iota // the fault comes first, and the write has no effect
	After              // the write has its effect, but the caller gets the fault instead of success
)

// A Fault is what goes wrong at one write.
type Fault struct {
	// Write is the number of the write at which the fault occurs, from 0. The writes of a rollback
	// continue this count.
	Write int
	When  When
	// Err is the error that the write returns. With Kill or Vanish, it is nil.
	Err error
	// Kill makes the write panic with Killed, as if the process got SIGKILL.
	Kill bool
	// Vanish is the name of a device that disappears at that write.
	Vanish string
	// With Sticky, all later writes return Err too.
	Sticky bool

	set bool
}

// Killed is the value with which a write panics if its Fault has Kill.
type Killed struct{}

// Inject sets the fault; it replaces an earlier one. It also sets the number of writes back to 0.
func (k *Kernel) Inject(f Fault) {
	f.set = true
	k.fault, k.writes = f, 0
}

// Calm removes the fault.
func (k *Kernel) Calm() { k.fault = Fault{} }

// Writes returns the number of writes since the last Inject.
func (k *Kernel) Writes() int { return k.writes }

func (k *Kernel) before(n int) error { return k.disturb(n, Before) }

func (k *Kernel) after(n int) error { return k.disturb(n, After) }

func (k *Kernel) disturb(n int, w When) error {
	f := k.fault
	if !f.set || f.When != w || n != f.Write && !(f.Sticky && n > f.Write) {
		return nil
	}
	if f.Kill {
		panic(Killed{})
	}
	if f.Vanish != "" {
		k.Vanish(f.Vanish)
		if w == Before {
			return unix.ENODEV
		}
		return nil
	}
	return f.Err
}

// SPDX-License-Identifier: Apache-2.0

package fakekernel

import "golang.org/x/sys/unix"

// A When is the side of a write's effect on which a fault occurs.
type When int

// Before and after the effect.
const (
	Before When = iota // the write has no effect
	After              // the write has its effect, but the caller does not learn of it
)

// A Fault is the failure of one write.
type Fault struct {
	// Write is the number of the write, from 0. Rollback's writes continue the count.
	Write int
	When  When
	// Err is the error of the write; nil with Kill or Vanish.
	Err error
	// Kill panics with Killed, as if the process got SIGKILL at that point.
	Kill bool
	// Vanish is the name of a device that disappears at that point.
	Vanish string
	// Sticky repeats Err at every later write.
	Sticky bool

	set bool
}

// Killed is the panic of a Fault with Kill.
type Killed struct{}

// Inject sets the fault and replaces an earlier one.
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

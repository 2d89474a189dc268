// SPDX-License-Identifier: Apache-2.0

package fakekernel

import "golang.org/x/sys/unix"

// A When says at which side of its effect a write is disturbed.
type When int

// The two sides.
const (
	Before When = iota // the write has had no effect
	After              // it has had its effect, but the caller does not learn of it
)

// A Fault disturbs one write.
type Fault struct {
	// Write is the number of the write, from 0. Rollback's writes count on.
	Write int
	When  When
	// Err is what the write returns; nil with Kill or Vanish.
	Err error
	// Kill panics with Killed, as if the process got SIGKILL there.
	Kill bool
	// Vanish names a device that disappears there.
	Vanish string
	// Sticky repeats Err at every later write.
	Sticky bool

	set bool
}

// Killed is the panic of a Fault with Kill.
type Killed struct{}

// Inject arranges for one fault, instead of an earlier one.
func (k *Kernel) Inject(f Fault) {
	f.set = true
	k.fault, k.writes = f, 0
}

// Calm removes the fault.
func (k *Kernel) Calm() { k.fault = Fault{} }

// Writes returns how many writes were asked for since the last Inject.
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

// SPDX-License-Identifier: Apache-2.0

// Package watch keeps applied lanes as they were applied. It waits for notifications, compares
// the lanes with the kernel as verify does, and restores missing objects as apply does. It
// fights no other program: it repairs a recurring drift later each time, and in the end leaves
// and reports it. The package decides when to look and when to repair. A Machine decides what
// to look at and how to repair.
package watch

import (
	"cmp"
	"context"
	"time"

	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/verify"
)

// A Machine compares and repairs lanes.
type Machine interface {
	// Look compares lanes with the kernel and returns a View of each kept lanes file. It
	// changes nothing and does not wait for other processes.
	Look(ctx context.Context) ([]View, error)
	// Hold excludes other appliers until release is called. It returns engine.ErrBusy if an
	// applier is at work, or if an apply waits for its confirmation.
	Hold(ctx context.Context) (release func(), err error)
	// Repair restores the missing objects of a lanes file, except those for which leave returns
	// true. The caller holds the machine.
	Repair(ctx context.Context, config string, leave func(key string) bool) (engine.Repair, error)
	// Release undoes settings that would harm a lane's queues while the objects that serve the
	// queues cannot be made. It returns the keys of the changed objects. The caller holds the
	// machine.
	Release(ctx context.Context, config string, missing []verify.Finding) ([]string, error)
}

// A View is the present state of one lanes file's lanes.
type View struct {
	// Config is the file's absolute path.
	Config string
	// Generation changes when the file is applied again. The keeper then repairs again what it
	// had left.
	Generation string
	// Ground describes the conditions of repairs besides the devices, in free form. When it
	// changes, failed repairs are tried again.
	Ground string
	// Drifts are the findings of severity drift. The keeper ignores other findings.
	Drifts []verify.Finding
	// Waits says, by device, why repairs are impossible now: "is absent", "is down", "has no
	// carrier".
	Waits map[string]string
}

// Defaults of Options.
const (
	// Settle is the quiet time before a look. SettleMost limits the wait for it, because a
	// resetting driver sends many events.
	Settle     = 20 * time.Millisecond
	SettleMost = 200 * time.Millisecond
	// Again is the interval of looks without an event. The kernel does not notify of every
	// change: not of map entries, rules on some cards, or the priority of a thread.
	Again = 30 * time.Second
	// share is the largest part of one processor for looks without an event. Slow looks become
	// rarer.
	share = 0.0005
)

// Options of a Keeper. Zero fields have the defaults.
type Options struct {
	Settle, SettleMost, Again time.Duration
	Patience                  Patience
	// Report gets the events. It must not block or call State.
	Report func(Event)
	// Alive is called when the keeper begins to wait: at least every Again, and every Heartbeat
	// if that is set. It is not called if the keeper hangs.
	Alive     func()
	Heartbeat time.Duration
}

func (o Options) withDefaults() Options {
	o.Settle = cmp.Or(o.Settle, Settle)
	o.SettleMost = cmp.Or(o.SettleMost, SettleMost)
	o.Again = cmp.Or(o.Again, Again)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	if o.Alive == nil {
		o.Alive = func() {}
	}
	return o
}

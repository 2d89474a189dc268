// SPDX-License-Identifier: Apache-2.0

// Package watch keeps applied lanes as they were applied. It waits for notifications, compares the
// lanes with the kernel as verify does, and restores missing objects as apply does. It does not
// fight another program: if a drift comes back again and again, it repairs it later each time, and
// in the end leaves it and reports that. The package decides when to look and when to repair. A
// Machine decides what to look at and how to repair.
package watch

import (
	"cmp"
	"context"
	"time"

	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/verify"
)

// A Machine gives access to lanes: to compare them with the kernel and to repair them.
type Machine interface {
	// Look compares lanes with the kernel, and returns a View for each lanes file that is kept. It
	// changes nothing and does not wait for other processes.
	Look(ctx context.Context) ([]View, error)
	// Hold keeps other processes from applying lanes, until release is called. If a process applies
	// lanes at this moment, or an apply waits for its confirmation, it returns engine.ErrBusy.
	Hold(ctx context.Context) (release func(), err error)
	// Repair restores the missing objects of a lanes file. It leaves objects for which leave returns
	// true. The caller must have called Hold.
	Repair(ctx context.Context, config string, leave func(key string) bool) (engine.Repair, error)
	// Release undoes settings that would harm a lane's queues. This is needed if the objects that
	// serve these queues cannot be made. It returns the keys of the objects that it changed. The
	// caller must have called Hold.
	Release(ctx context.Context, config string, missing []verify.Finding) ([]string, error)
}

// A View is the present state of the lanes of one file.
type View struct {
	// Config is the file's absolute path.
	Config string
	// Generation changes when the file is applied again. The keeper then also repairs the drifts that
	// it had left.
	Generation string
	// Ground is a text about what repairs depend on, apart from devices. When it changes, the keeper
	// tries failed repairs again.
	Ground string
	// Drifts are the findings of severity drift. The keeper ignores other findings.
	Drifts []verify.Finding
	// Waits has the devices on which repairs are impossible now, with the reasons: "is absent", "is
	// down", "has no carrier".
	Waits map[string]string
}

// The defaults of Options.
const (
	// Settle is how long no event must come before a look starts. SettleMost limits that wait: a
	// driver that resets its card sends events for a long time.
	Settle     = 20 * time.Millisecond
	SettleMost = 200 * time.Millisecond
	// Again is the time between looks if no event comes. The kernel does not notify of every change:
	// not of map entries, of rules on some cards, or of a thread's priority.
	Again = 30 * time.Second
	// share is the part of one processor that looks without an event may use. If a look takes long,
	// looks become rarer.
	share = 0.0005
)

// Options are the settings of a Keeper. A field that is zero has the default.
type Options struct {
	Settle, SettleMost, Again time.Duration
	Patience                  Patience
	// Report gets the events. It must not block or call State.
	Report func(Event)
	// Alive is called when the keeper begins to wait: at least every Again, and every Heartbeat if
	// that is set. A keeper that hangs does not call it.
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

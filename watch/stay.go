// SPDX-License-Identifier: Apache-2.0

// Package watch keeps applied lanes as they were applied. It waits for notifications, compares the
// lanes with the kernel as verify does, and restores missing objects as apply does. It does not
// fight other programs: if a drift comes back again and again, the package repairs it later each
// time. In the end it no longer repairs the drift, and reports this. The package decides when to
// look and when to repair. A Machine decides what to look at and how to repair.
package watch

import (
	"cmp"
	"context"
	"time"

	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/verify"
)

// A Machine compares lanes with the kernel and repairs them.
type Machine interface {
	// Look compares lanes with the kernel, and returns a View for each lanes file that is kept. It
	// changes nothing and does not wait for other processes.
	Look(ctx context.Context) ([]View, error)
	// Hold keeps other processes from applying lanes, until release is called. If another process is
	// applying lanes, or an apply waits for its confirmation, Hold returns engine.ErrBusy.
	Hold(ctx context.Context) (release func(), err error)
	// Repair restores the missing objects of a lanes file. If leave returns true for the key of an
	// object, Repair does not restore it. The caller must have called Hold.
	Repair(ctx context.Context, config string, leave func(key string) bool) (engine.Repair, error)
	// Release undoes settings that would harm a lane's queues, if the objects that serve these queues
	// cannot be made. It returns the keys of the objects that it changed. The caller must have called
	// Hold.
	Release(ctx context.Context, config string, missing []verify.Finding) ([]string, error)
}

// A View is the present state of the lanes of one file.
type View struct {
	// Config is the file's absolute path.
	Config string
	// Generation changes when the file is applied again. The keeper then begins again to repair drifts
	// that it had left.
	Generation string
	// Ground is a text about the conditions of repairs, without those of devices. When it changes, the
	// keeper tries failed repairs again.
	Ground string
	// Drifts are the findings of severity drift. The keeper ignores other findings.
	Drifts []verify.Finding
	// Waits has the devices on which repairs are impossible now, with the reasons: "is absent", "is
	// down", "has no carrier".
	Waits map[string]string
}

// The defaults of Options.
const (
	// Settle is how long no event must have come before a look starts. SettleMost limits the wait for
	// this, because a driver that resets its card sends many events.
	Settle     = 20 * time.Millisecond
	SettleMost = 200 * time.Millisecond
	// Again is the time between looks if no event comes. Such looks are needed, because the kernel
	// does not notify of changes of map entries, of rules on some cards, or of a thread's priority.
	Again = 30 * time.Second
	// share is the part of one processor that looks without an event may use. The longer a look takes,
	// the rarer looks become.
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

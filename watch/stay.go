// SPDX-License-Identifier: Apache-2.0

// Package watch keeps applied lanes as they were applied. It waits until somebody
// says that something has changed, compares the lanes with the kernel as verify
// does, and has what is missing made again as apply does. It fights nobody: what
// comes back again and again is repaired later each time, and in the end left
// and reported. It decides when to look and when to repair; what to look at and
// how to repair are a Machine's.
package watch

import (
	"cmp"
	"context"
	"time"

	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/verify"
)

// A Machine is looked at and repaired.
type Machine interface {
	// Look compares lanes with the kernel: a View of each lanes file that is
	// kept. It changes nothing and waits for nobody.
	Look(ctx context.Context) ([]View, error)
	// Hold keeps other appliers away until release is called. engine.ErrBusy: one is
	// at work, or somebody has yet to confirm what one did.
	Hold(ctx context.Context) (release func(), err error)
	// Repair makes what a lanes file lacks, but none of the objects that leave
	// reports by their keys. The machine is held.
	Repair(ctx context.Context, config string, leave func(key string) bool) (engine.Repair, error)
	// Release undoes what would harm a lane's queues while what is to serve
	// them cannot be made, and returns the keys of what it changed. The
	// machine is held.
	Release(ctx context.Context, config string, missing []verify.Finding) ([]string, error)
}

// A View is one lanes file's lanes as they are now.
type View struct {
	// Config is the file's absolute path.
	Config string
	// Generation changes when somebody applies the file anew: what was left
	// alone until then is forgiven.
	Generation string
	// Ground is what repairs need beside the devices, in any words: when it
	// changes, what could not be repaired is tried anew.
	Ground string
	// Drifts are the findings of that severity, others are not reported.
	Drifts []verify.Finding
	// Waits says, by device, why nothing can be repaired on it now: "is
	// absent", "is down", "has no carrier".
	Waits map[string]string
}

// Defaults of Options.
const (
	// Settle is how long nothing may happen before the lanes are looked at,
	// SettleMost how long that is waited for: a driver that resets says much.
	Settle     = 20 * time.Millisecond
	SettleMost = 200 * time.Millisecond
	// Again is how often the lanes are looked at although nobody said that
	// anything changed: not every change is told (map entries, rules on some
	// cards, the priority of a thread).
	Again = 30 * time.Second
	// share is the most that looking unasked may take of one processor: if a
	// look is slow, it is done less often.
	share = 0.0005
)

// Options of a Keeper. Zero fields have the defaults.
type Options struct {
	Settle, SettleMost, Again time.Duration
	Patience                  Patience
	// Report is told what happens. It must not block, nor ask for State.
	Report func(Event)
	// Alive is called whenever the keeper begins to wait: at least every
	// Again, and every Heartbeat if that is given, unless it hangs.
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

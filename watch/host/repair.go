// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// Restore makes again what applied lanes stand on, although niclane
// did not have to write it, and apply would not: it would lay them out anew on
// what it finds. Nothing of it is niclane's after that, as before: it is as it
// was when the lanes were applied, and no business of rollback's.
func Restore(ctx context.Context, runDir string, applied verify.Applied, devices, groups []string, leave func(key string) bool) (done []string, err error) {
	now, known, err := Observe(ctx, runDir, devices, groups)
	if err != nil || !known {
		return nil, err
	}
	steps := ground(applied, Without(now, applied.Displaced), leave)
	if len(steps) == 0 {
		return nil, nil
	}
	k, err := apply.NewKernel(runDir)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	for _, s := range steps {
		if err := k.Write(s.Old, s.New); err != nil {
			return done, fmt.Errorf("%s: %w", s.Key(), err)
		}
		done = append(done, s.Key())
	}
	return done, nil
}

// ground returns the steps back to the channels and features that there were
// after apply, of those whose change is a drift.
func ground(applied verify.Applied, now *device.State, leave func(key string) bool) []plan.Step {
	if applied.State == nil {
		return nil
	}
	was, present := applied.State.Objects(), now.Objects()
	owned := map[string]bool{}
	for _, r := range applied.Owned {
		if r.Last != nil {
			owned[r.Last.Key()] = true
		}
	}
	var steps []plan.Step
	for _, f := range verify.State(applied, now) {
		if f.Severity != verify.Drift || leave(f.Key) {
			continue
		}
		key := f.Key
		if f.Part == device.PartQueueSet && f.Lane == "" {
			key = device.Channels{Dev: f.Device}.Key() // their number, by queues
		}
		switch o := was[key].(type) {
		case device.Channels, device.Feature:
			if now := present[key]; !owned[key] && now != nil && !device.Equal(now, o) {
				steps = append(steps, plan.Step{Old: now, New: o})
			}
		}
	}
	return steps
}

// Pieces returns, for each drift that leave does not name, the steps back to what
// niclane left there: for where planning refuses the lanes as a whole, which one
// object of somebody else's or one control group that has ended is enough for.
// What somebody else has in the place of niclane's is left out.
func Pieces(applied verify.Applied, now *device.State, leave func(key string) bool) [][]plan.Step {
	present, last := now.Objects(), map[string]verify.Record{}
	if applied.State != nil {
		for key, o := range applied.State.Objects() {
			if o, is := o.(device.File); is {
				last[key] = verify.Record{Last: o, Part: device.PartMapper, Cause: "lanes"}
			}
		}
	}
	for _, r := range applied.Owned {
		if r.Last != nil {
			last[r.Last.Key()] = r
		}
	}
	var pieces [][]plan.Step
	for _, f := range verify.State(applied, now) {
		var steps []plan.Step
		for _, key := range append([]string{f.Key}, f.With...) {
			r, known := last[key]
			if f.Severity != verify.Drift || !known || leave(key) || device.Equal(present[key], r.Last) {
				continue
			}
			if taken(present[key], r.Last) {
				steps = nil // what it leads to cannot be made either
				break
			}
			steps = append(steps, plan.Step{Old: present[key], New: r.Last, Part: r.Part, Cause: r.Cause, Reason: key + " as niclane left it"})
		}
		if len(steps) > 0 {
			pieces = append(pieces, steps)
		}
	}
	return pieces
}

// taken reports whether now is somebody else's, in the one place of an object.
func taken(now, last device.Object) bool {
	switch o := last.(type) {
	case device.Qdisc:
		q, there := now.(device.Qdisc)
		return there && (q.Type != o.Type || q.Handle != o.Handle)
	case device.XDP:
		x, there := now.(device.XDP)
		return there && x.Program != o.Program
	case device.Filter:
		x, there := now.(device.Filter)
		return there && x.Program != o.Program
	case device.Flower:
		return now != nil
	}
	return false
}

// Release gives NAPIs whose poller cannot be had the
// deferral of interrupts back that they had before niclane. What verify and
// rollback compare with stays what it is: the lane is not whole.
func Release(runDir string, records []journal.Record, missing []verify.Finding) (released []string, err error) {
	k, err := apply.NewKernel(runDir)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	for _, r := range records {
		was, ok := r.Original.(device.NAPIConfig)
		if !ok || !unpolled(records, was, missing) {
			continue
		}
		present, rerr := k.Read(was)
		now, ok := present.(device.NAPIConfig)
		if rerr != nil || !ok {
			err = errors.Join(err, rerr) // or it has no NAPI now: nothing is deferred
			continue
		}
		was.Threaded = now.Threaded
		if now == was {
			continue
		}
		if werr := k.Write(now, was); werr != nil {
			err = errors.Join(err, fmt.Errorf("%s: interrupts stay deferred: %w", was.Key(), werr))
			continue
		}
		released = append(released, was.Key())
	}
	return released, err
}

// unpolled reports whether the poller of a NAPI's queue is among what is missing.
func unpolled(records []journal.Record, n device.NAPIConfig, missing []verify.Finding) bool {
	for _, r := range records {
		p, ok := r.Last.(device.Poller)
		if !ok || p.Dev != n.Dev || !slices.Contains(p.Queues, n.Queue) {
			continue
		}
		for _, f := range missing {
			if f.Key == p.Key() || slices.Contains(f.With, p.Key()) {
				return true
			}
		}
	}
	return false
}

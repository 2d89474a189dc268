// SPDX-License-Identifier: Apache-2.0

package engine

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

// A Repair says what a repair has done.
type Repair struct {
	// Done are the keys of the objects that were written, in order. Warnings are problems that did
	// not stop the repair.
	Done, Warnings []string
}

// Make makes the lanes of a file, like Apply without Within. It does not accept other programs'
// changes: Look still reports them. The caller holds the lock.
func (e *Engine) Make(ctx context.Context, f *File) (Repair, error) {
	defer e.Memory.lock()()
	return e.repair(ctx, f, nil)
}

func (e *Engine) repair(ctx context.Context, f *File, leave func(key string) bool) (out Repair, err error) {
	r, err := e.apply(ctx, f, request{ApplyOptions: ApplyOptions{Keep: true}, leave: leave})
	if r != nil && r.Report != nil {
		out.Warnings = r.Report.Warnings
		if err == nil {
			out.Done = r.Report.Done
		}
	}
	return out, err
}

// Repair makes the lanes of a file again as they were applied. It does not change an object if
// leave(key) is true. It does nothing for a file that was rolled back. The caller holds the lock.
func (e *Engine) Repair(ctx context.Context, name string, leave func(key string) bool) (Repair, error) {
	defer e.Memory.lock()()
	e.Memory.forget()
	j, err := e.journalOf(name)
	if j == nil || err != nil {
		return Repair{}, err
	}
	f, err := Parse(name, []byte(j.Head().ConfigText))
	if err != nil {
		return Repair{}, fmt.Errorf("%s as it was applied: %w", name, err)
	}
	ground, err := e.restore(ctx, j, leave)
	if err != nil {
		return Repair{Done: ground}, err
	}
	out, err := e.repair(ctx, f, leave)
	var refused plan.Errors
	if errors.As(err, &refused) {
		var perr error
		out, perr = e.repairPieces(ctx, f, j, leave)
		err = errors.Join(err, perr)
	}
	out.Done = append(ground, out.Done...)
	return out, err
}

// journalOf returns the journal of a file, nil if there is none or if it is being rolled back.
func (e *Engine) journalOf(name string) (*journal.Journal, error) {
	js, err := e.journals()
	for _, j := range js {
		if j.Head().Config == name && !j.RolledBack() {
			return j, nil
		}
	}
	return nil, err
}

// repairPieces repairs each drift of the lanes of j by itself, for the case that planning refuses
// the lanes as a whole. If one repair fails, it continues with the others.
func (e *Engine) repairPieces(ctx context.Context, f *File, j *journal.Journal,
	leave func(key string) bool) (out Repair, err error) {
	v, err := e.view(ctx, j)
	if err != nil || !v.Known {
		return out, err
	}
	s, here, err := e.open()
	if err != nil {
		return out, err
	}
	defer s.Close()
	for _, steps := range pieces(v, leave) {
		p := *j.Head().Plan
		p.Steps, p.Forget, p.Gone = steps, nil, nil
		r, rerr := e.carryOut(ctx, s, headOf(here, f, &p), &Planned{Plan: &p, State: v.Now},
			request{ApplyOptions: ApplyOptions{Keep: true}})
		err = errors.Join(err, rerr)
		if r == nil {
			continue
		}
		out.Warnings = append(out.Warnings, r.Report.Warnings...)
		if rerr == nil {
			out.Done = append(out.Done, r.Report.Done...)
		}
	}
	return out, err
}

// restore restores channels and features that the lanes depend on but niclane did not write. An
// apply would accept the new values and plan other lanes. The steps are not in the journal: they
// restore values from the time of the apply, so rollback has nothing to undo.
func (e *Engine) restore(ctx context.Context, j *journal.Journal, leave func(key string) bool) (done []string,
	err error) {
	v, err := e.view(ctx, j)
	if err != nil || !v.Known {
		return nil, err
	}
	steps := ground(v, leave)
	if len(steps) == 0 {
		return nil, nil
	}
	k, err := apply.NewKernel(e.RunDir)
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

// ground returns the steps that restore channels and features to their values right after the
// apply. It skips those for which verify reports no drift.
func ground(v *View, leave func(key string) bool) []plan.Step {
	applied := v.Applied
	if applied.State == nil {
		return nil
	}
	was, present := applied.State.Objects(), v.Now.Objects()
	owned := map[string]bool{}
	for _, r := range applied.Owned {
		if r.Last != nil {
			owned[r.Last.Key()] = true
		}
	}
	var steps []plan.Step
	for _, f := range v.Findings {
		if f.Severity != verify.Drift || leave(f.Key) {
			continue
		}
		key := f.Key
		if f.Part == device.PartQueueSet && f.Lane == "" {
			// The finding is about queues; the object to restore has their number.
			key = device.Channels{Dev: f.Device}.Key()
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

// pieces returns, for each drift, the steps that restore niclane's last values. It is for the
// case that planning refuses the lanes as a whole, for example because of one object of another
// program or one missing control group. It skips an object if leave(key) is true, or if another
// program's object is in its place.
func pieces(v *View, leave func(key string) bool) [][]plan.Step {
	applied := v.Applied
	present, last := v.Now.Objects(), map[string]plan.Record{}
	if applied.State != nil {
		for key, o := range applied.State.Objects() {
			if o, is := o.(device.File); is {
				last[key] = plan.Record{Last: o, Part: device.PartMapper, Cause: "lanes"}
			}
		}
	}
	for _, r := range applied.Owned {
		if r.Last != nil {
			last[r.Last.Key()] = r
		}
	}
	var out [][]plan.Step
	for _, f := range v.Findings {
		var steps []plan.Step
		for _, key := range append([]string{f.Key}, f.With...) {
			r, known := last[key]
			if f.Severity != verify.Drift || !known || leave(key) || device.Equal(present[key], r.Last) {
				continue
			}
			if taken(present[key], r.Last) {
				steps = nil // objects that depend on it cannot be made either
				break
			}
			steps = append(steps, plan.Step{Old: present[key], New: r.Last, Part: r.Part, Cause: r.Cause,
				Reason: key + " as niclane left it"})
		}
		if len(steps) > 0 {
			out = append(out, steps)
		}
	}
	return out
}

// taken reports whether now is an object of another program in the place of niclane's object
// last. Then last cannot be made.
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

// Release restores the original interrupt deferral of NAPIs whose poller cannot be started.
// Otherwise their packets would wait. verify and rollback still compare with niclane's values,
// because the lane is not complete. The caller holds the lock.
func (e *Engine) Release(name string, missing []verify.Finding) (released []string, err error) {
	defer e.Memory.lock()()
	e.Memory.forget()
	j, err := e.journalOf(name)
	if j == nil || err != nil {
		return nil, err
	}
	records := j.Records()
	k, err := apply.NewKernel(e.RunDir)
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
			err = errors.Join(err, rerr) // without a NAPI, no interrupt is deferred
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

// unpolled reports whether the poller of a NAPI's queue is one of the missing pollers.
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

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// ApplyOptions are the options of Apply. The zero value applies without confirmation.
type ApplyOptions struct {
	// Within starts a process that undoes this apply after that time unless Confirm is
	// called first; 0: none.
	Within time.Duration
	// Wait waits for another apply until ctx ends.
	Wait bool
	// Keep leaves later changes by other programs visible as differences, and lets counters
	// continue.
	Keep bool
	// Planned, if not nil, is called with a plan that has steps, before the first step. Its
	// error ends the apply.
	Planned func(*plan.Plan) error
}

// A Result is what an apply did. Apply returns it with a FailedError too.
type Result struct {
	Planned
	// Report is nil if no step was tried.
	Report *apply.Report
	// Journal is the path of the journal, if the plan has steps.
	Journal string
	// Again says that the file had been applied before.
	Again bool
	// ConfirmBy is the time at which the apply is undone unless confirmed.
	ConfirmBy *time.Time
}

// A FailedError is a failed step. All earlier steps were undone, except for Left objects.
type FailedError struct {
	Err  error
	Left int
}

// Error implements error.
func (e *FailedError) Error() string {
	if e.Left == 0 {
		return fmt.Sprintf("%v\nthe machine is as it was before", e.Err)
	}
	noun := "object"
	if e.Left > 1 {
		noun = "objects"
	}
	return fmt.Sprintf("%v\n%d %s could not be undone: niclane rollback --last tries again", e.Err, e.Left, noun)
}

// Unwrap implements errors.Unwrap.
func (e *FailedError) Unwrap() error { return e.Err }

// Apply changes what the lanes of a file need. If a step fails, or ctx ends, it undoes its
// steps and returns a FailedError. It waits up to 30 s for a watch that repairs and for an
// agent. Another apply, or a change that is not confirmed yet, is an error.
func (e *Engine) Apply(ctx context.Context, f *File, o ApplyOptions) (*Result, error) {
	lock, err := e.lock(ctx, o.Wait)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	defer e.Memory.lock()()
	if err := apply.CheckPending(e.RunDir); err != nil {
		return nil, err
	}
	return e.apply(ctx, f, request{ApplyOptions: o, tidy: true})
}

// Confirm keeps the changes of an apply with Within. It returns apply.ErrNothingPending if
// there is none.
func (e *Engine) Confirm() error { return apply.Confirm(e.RunDir) }

// Unconfirmed describes a change that was never confirmed and whose guardian is gone, "" if
// there is none.
func (e *Engine) Unconfirmed() string { return apply.Unconfirmed(e.RunDir) }

// A request says how to apply a plan.
type request struct {
	ApplyOptions
	tidy bool
	// leave reports whether no step may change the object with this key; nil: change all.
	leave func(key string) bool
}

// apply is Apply with the lock held.
func (e *Engine) apply(ctx context.Context, f *File, o request) (*Result, error) {
	s, here, err := e.open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if r, done, err := e.applyKnown(ctx, f, s, here, o); done || err != nil {
		return r, err
	}
	if o.tidy {
		e.tidy(s)
	}
	e.Memory.disconnect() // control groups may have been mounted since
	p, err := e.plan(ctx, f, s)
	if err != nil {
		return nil, err
	}
	if o.leave != nil {
		p.Steps = slices.DeleteFunc(p.Steps, func(s plan.Step) bool { return o.leave(s.Key()) })
	}
	if len(p.Steps) == 0 {
		if err := e.unchanged(s, headOf(here, f, p.Plan)); err != nil {
			return nil, err
		}
		e.Memory.same(s, f.Name, p)
		return &Result{Planned: *p}, nil
	}
	return e.carryOut(ctx, s, headOf(here, f, p.Plan), p, o)
}

// carryOut writes the journal, makes the steps of the plan, and remembers the state after
// them.
func (e *Engine) carryOut(ctx context.Context, s *journal.Store, h journal.Head, p *Planned, o request) (*Result,
	error) {
	if o.Planned != nil {
		if err := o.Planned(p.Plan); err != nil {
			return nil, err
		}
	}
	k, err := e.connect()
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() {
		if !kept {
			_ = k.Close() // its writes were read back, or are undone
		}
	}()
	k.Prepare(p.Steps)
	j, err := s.Begin(h)
	if err != nil {
		return nil, err
	}
	guard, err := e.guard(j, o.Within)
	if err != nil {
		return nil, errors.Join(err, j.RemoveOrRevert())
	}
	r := &Result{Planned: *p, Journal: j.Path(), Again: j.Head().Generation > 1}
	r.Report, err = apply.Run(ctx, k, p.Plan, j, apply.Options{})
	if err != nil {
		if guard != nil {
			err = errors.Join(err, guard.Cancel())
		}
		return r, &FailedError{err, len(r.Report.Left)}
	}
	if e.Memory != nil {
		s.Keep(j)
		kept = e.Memory.keep(j, k, p)
	}
	if err := e.remember(j, o.Keep, p.State); err != nil {
		r.Report.Warnings = append(r.Report.Warnings, "counters: "+err.Error())
	}
	if guard != nil {
		by, err := guard.Ended()
		if err != nil {
			r.Report.Warnings = append(r.Report.Warnings, "guardian: "+err.Error())
		}
		r.ConfirmBy = &by
	}
	return r, nil
}

// guard starts the guardian before the first step, if within is not 0.
func (e *Engine) guard(j *journal.Journal, within time.Duration) (*apply.Guard, error) {
	if within == 0 {
		return nil, nil
	}
	g, err := apply.StartGuard(j, e.RunDir, e.StateDir, within)
	if err != nil {
		return nil, err
	}
	e.warn(g.Warnings()...)
	return g, nil
}

// headOf returns the head of a journal for p.
func headOf(here journal.Host, f *File, p *plan.Plan) journal.Head {
	who, when := journal.Self()
	return journal.Head{
		Host: here, Config: f.Name, ConfigText: string(f.Text), Who: who, When: when, Devices: p.Devices, Plan: p,
		Undoable: true,
	}
}

// unchanged records a plan without steps if it contains something new. It removes absent,
// unwanted objects from the record, so that verify and rollback no longer report them. It
// also records new Sharing slaves if their rates did not change (a card's, or ceilings
// above the links).
func (e *Engine) unchanged(s *journal.Store, h journal.Head) error {
	if len(h.Plan.Forget) == 0 && len(h.Plan.Sharing) == 0 {
		return nil
	}
	all, err := s.Here()
	if err != nil {
		return err
	}
	var was *device.State
	var sharing []string
	for _, old := range all {
		if old.Head().Config == h.Config {
			was, sharing = e.applied(old.Head()).State, old.Head().Plan.Sharing
		}
	}
	if len(h.Plan.Forget) == 0 && slices.Equal(h.Plan.Sharing, sharing) {
		return nil
	}
	j, err := s.Begin(h)
	if err != nil {
		return err
	}
	if err := j.RemoveOrRevert(); err != nil || len(j.Records()) == 0 {
		return err
	}
	if was != nil {
		if err := e.writeApplied(j.Head(), was); err != nil {
			return err
		}
	}
	return j.End()
}

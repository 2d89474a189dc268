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
	// Within is the time in which the apply must be confirmed. Otherwise a process undoes it. 0: no
	// confirmation is needed.
	Within time.Duration
	// Wait says to wait until another apply has ended, or ctx ends.
	Wait bool
	// Keep says to keep other programs' changes visible: Compare still reports them as differences
	// after this apply. Without Keep, the state after the apply is the new reference. With Keep,
	// counters also continue.
	Keep bool
	// Only, if not nil, selects the steps to make. The journal then names no lanes, because they are not
	// complete.
	Only func(plan.Step) bool
	// Planned, if not nil, is called with a plan that has steps, before the first step. If it
	// returns an error, nothing is applied.
	Planned func(*plan.Plan) error
}

// A Result says what an apply did. Apply also returns it together with a FailedError.
type Result struct {
	Planned
	// Report is the report of the steps; nil if none was tried.
	Report *apply.Report
	// Journal is the path of the journal, if the plan has steps.
	Journal string
	// Again says that the file had been applied before.
	Again bool
	// ConfirmBy is the time at which the apply is undone if it is not confirmed; nil if it needs no
	// confirmation.
	ConfirmBy *time.Time
}

// A FailedError means that a step has failed and that the earlier steps were undone. Left is the
// number of objects that could not be restored.
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

// Apply makes the lanes of a file: it plans, and makes the steps of the plan. If a step fails or
// ctx ends, it undoes its steps and returns a FailedError. It waits up to 30 s for an agent, or
// for a watch that repairs. It returns an error if another apply runs, or if an earlier change is
// not confirmed yet.
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

// Confirm keeps the changes of an apply with Within. If no apply waits for confirmation, it
// returns apply.ErrNothingPending.
func (e *Engine) Confirm() error { return apply.Confirm(e.RunDir) }

// Unconfirmed describes a change that was not confirmed before its guardian was killed, "" if
// there is none.
func (e *Engine) Unconfirmed() string { return apply.Unconfirmed(e.RunDir) }

// A request has the options of an apply, and those that only the engine itself uses.
type request struct {
	ApplyOptions
	tidy bool
	// leave reports whether the apply must not change the object with this key. nil: it may change
	// all.
	leave func(key string) bool
}

// apply does what Apply does. The caller holds the lock.
func (e *Engine) apply(ctx context.Context, f *File, o request) (*Result, error) {
	s, here, err := e.open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if o.Only == nil {
		if r, done, err := e.applyKnown(ctx, f, s, here, o); done || err != nil {
			return r, err
		}
	}
	if o.tidy {
		e.tidy(s)
	}
	e.Memory.disconnect() // control groups may have been mounted since it was connected
	p, err := e.plan(ctx, f, s)
	if err != nil {
		return nil, err
	}
	if o.leave != nil {
		p.Steps = slices.DeleteFunc(p.Steps, func(s plan.Step) bool { return o.leave(s.Key()) })
	}
	if o.Only != nil {
		p.Steps = slices.DeleteFunc(p.Steps, func(s plan.Step) bool { return !o.Only(s) })
		p.Lanes, p.Choices = nil, nil
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

// carryOut writes the journal, makes the steps of the plan, and records the state after them.
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
			_ = k.Close() // nothing is lost: its writes were read back or undone
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

// guard starts the guardian of an apply. It returns nil if within is 0.
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

// headOf returns the head of the journal for the plan p of a file.
func headOf(here journal.Host, f *File, p *plan.Plan) journal.Head {
	who, when := journal.Self()
	return journal.Head{
		Host: here, Config: f.Name, ConfigText: string(f.Text), Who: who, When: when, Devices: p.Devices, Plan: p,
		Undoable: true,
	}
}

// unchanged writes a journal for a plan without steps, if there is something new to record.
// Objects that are absent and unwanted leave the records, so that verify and rollback no longer
// report them. Another list of Sharing slaves is also recorded: a change of the slaves can leave
// all rates as they are, for example those of a card's traffic classes.
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

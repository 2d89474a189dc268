// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/plan"
)

// Options of Run and Rollback.
type Options struct {
	// Force restores objects that somebody else has changed since. It
	// never removes what somebody else's objects hang on.
	Force bool
	// Progress, if not nil, is told about each object before it is written.
	Progress func(Event)
}

// An Event is one write that is about to happen.
type Event struct {
	Key   string
	Undo  bool
	Index int // of Total
	Total int
}

func (o Options) tell(e Event) {
	if o.Progress != nil {
		o.Progress(e)
	}
}

// Run makes the steps of p, recording into j, whose head holds p. Every object
// must be as the step's Old says and, after the write, as its New says. On the
// first failure, or when ctx ends, what was done is undone in reverse; the
// error is then that failure, joined with a LeftError if something could not
// be undone. The report says what was reached either way.
func Run(ctx context.Context, k Kernel, p *plan.Plan, j *journal.Journal, opts Options) (*Report, error) {
	r := &runner{k: k, opts: opts}
	if len(j.Head().Plan.Steps) != len(p.Steps) {
		return &r.report, fmt.Errorf("apply: the journal holds a plan of %d steps, not of %d", len(j.Head().Plan.Steps), len(p.Steps))
	}
	for i, s := range p.Steps {
		err := ctx.Err()
		if err == nil {
			opts.tell(Event{Key: s.Key(), Index: i, Total: len(p.Steps)})
			err = r.step(j, i, s)
		}
		if err != nil {
			err = fmt.Errorf("step %d of %d: %w", i+1, len(p.Steps), err)
			r.undoSteps(j, p.Steps)
			return &r.report, errors.Join(err, r.left(), removeIfEmpty(j))
		}
		r.report.Done = append(r.report.Done, s.Key())
	}
	if err := j.End(); err != nil {
		// All steps are made and recorded; only the end is not.
		r.warn(err)
	}
	return &r.report, nil
}

// Undo undoes this generation's steps of j, in reverse: what the apply that
// wrote j changed, not what earlier ones of the same config did.
func Undo(k Kernel, j *journal.Journal, opts Options) (*Report, error) {
	r := &runner{k: k, opts: opts}
	r.undoSteps(j, j.Head().Plan.Steps)
	return &r.report, errors.Join(r.left(), removeIfEmpty(j))
}

// removeIfEmpty removes a journal that records nothing any more.
func removeIfEmpty(j *journal.Journal) error {
	if len(j.Records()) > 0 {
		return nil
	}
	return j.Remove()
}

type runner struct {
	k      Kernel
	opts   Options
	report Report
}

func (r *runner) warn(err error) { r.report.Warnings = append(r.report.Warnings, err.Error()) }

func (r *runner) left() error {
	if len(r.report.Left) == 0 {
		return nil
	}
	return LeftError(r.report.Left)
}

func (r *runner) step(j *journal.Journal, i int, s plan.Step) error {
	key := s.Key()
	present, err := r.k.Read(s.Object())
	if err != nil {
		return fmt.Errorf("%s: read: %w", key, err)
	}
	made := implicit(s.Object()) && s.Old == nil && present != nil
	if !device.Equal(present, s.Old) && !made {
		return &MismatchError{Key: key, When: "changed since the plan was made", Want: s.Old, Found: present}
	}
	if s.New == nil {
		if err := r.unoccupied(present); err != nil {
			return err
		}
	}
	if err := j.Begin(i); err != nil {
		return err
	}
	if err := r.write(present, s.New); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if s.New == nil && implicit(s.Object()) {
		return j.Done(i)
	}
	got, err := r.k.Read(s.Object())
	if err != nil {
		return fmt.Errorf("%s: read back: %w", key, err)
	}
	if !device.Equal(got, s.New) {
		return &MismatchError{Key: key, When: "read back", Want: s.New, Found: got}
	}
	return j.Done(i)
}

// write skips what needs no write: an implicit object's removal, and a value
// that is there already.
func (r *runner) write(present, want device.Object) error {
	if device.Equal(present, want) || want == nil && implicit(present) {
		return nil
	}
	return r.k.Write(present, want)
}

// unoccupied returns an error if something hangs on o.
func (r *runner) unoccupied(o device.Object) error {
	oc, ok := r.k.(Occupier)
	if !ok || o == nil {
		return nil
	}
	who, err := oc.Occupants(o)
	if err != nil {
		return fmt.Errorf("%s: read what hangs on it: %w", o.Key(), err)
	}
	if len(who) > 0 {
		return &OccupiedError{Key: o.Key(), Occupants: who}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// Options are the options of Run, Undo and Rollback.
type Options struct {
	// Force restores objects even if other programs have changed them. To remove an object of
	// niclane, it also removes objects of other programs that depend on it. The report lists these.
	Force bool
	// Progress, if not nil, is called for each object before it is written.
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

// Run makes the steps of p and records them in j, whose head contains p. Before a step, the
// object must have the step's Old value, and after it the New value. Successive objects of one
// kind are a group: Run reads all of them before the first write of the group, and all again
// after the last. If a step fails or ctx ends, Run undoes its steps in reverse order. The error
// is then that failure, joined with a LeftError if something could not be undone. The report says
// what was done in either case.
func Run(ctx context.Context, k Kernel, p *plan.Plan, j *journal.Journal, opts Options) (*Report, error) {
	r, err := newRunner(k, j.Head().Ground, opts)
	if err != nil {
		return &r.report, err
	}
	r.resized = resized(p.Steps)
	if len(j.Head().Plan.Steps) != len(p.Steps) {
		return &r.report, fmt.Errorf("apply: the journal holds a plan of %d steps, not of %d", len(j.Head().Plan.Steps),
			len(p.Steps))
	}
	if err := r.steady(); err != nil {
		return &r.report, errors.Join(err, j.RemoveOrRevert())
	}
	for first := 0; first < len(p.Steps); {
		n := group(p.Steps[first:])
		at, err := r.steps(ctx, j, p.Steps, first, first+n)
		if err != nil {
			err = r.blame(fmt.Errorf("step %d of %d: %w", at+1, len(p.Steps), err))
			r.undoSteps(j, p.Steps)
			return &r.report, errors.Join(err, r.left(), j.RemoveOrRevert())
		}
		first += n
	}
	if err := j.End(); err != nil {
		// All steps are made and recorded. Only the record of the end is missing.
		r.warn(err)
	}
	return &r.report, nil
}

// Undo undoes the steps of one generation: of the apply that wrote j, not of earlier ones of the
// same lanes file. It undoes them in reverse order.
func Undo(k Kernel, j *journal.Journal, opts Options) (*Report, error) {
	r, err := newRunner(k, j.Head().Ground, opts)
	if err != nil {
		return &r.report, err
	}
	r.resized = resized(j.Head().Plan.Steps)
	r.undoSteps(j, j.Head().Plan.Steps)
	return &r.report, errors.Join(r.left(), j.RemoveOrRevert())
}

type runner struct {
	k      Kernel
	follow *follower // k, if it can find devices; or nil
	opts   Options
	report Report
	tasks  []*task // all objects to restore
	// resized are the devices whose number of channels the plan changes.
	resized map[string]bool
}

func resized(steps []plan.Step) map[string]bool {
	devs := map[string]bool{}
	for _, s := range steps {
		if c, ok := s.Object().(device.Channels); ok {
			devs[c.Dev] = true
		}
	}
	return devs
}

// warn adds a warning, but each text only once: on a full disk, every write of progress fails
// with the same text.
func (r *runner) warn(err error) {
	if w := err.Error(); !slices.Contains(r.report.Warnings, w) {
		r.report.Warnings = append(r.report.Warnings, w)
	}
}

func (r *runner) left() error {
	if len(r.report.Left) == 0 {
		return nil
	}
	return LeftError(r.report.Left)
}

// group returns how many steps at the start of the list form a group: different objects of one
// kind, which are read together before the first write and after the last. A step that removes an
// object is a group of its own, because the objects that depend on it are read just before.
func group(steps []plan.Step) int {
	seen := map[string]bool{}
	for n, s := range steps {
		if n > 0 && (s.New == nil || s.New.Kind() != steps[0].New.Kind() || seen[s.Key()]) {
			return n
		}
		if s.New == nil {
			return 1
		}
		seen[s.Key()] = true
	}
	return len(steps)
}

// steps makes the steps from first to end, which are one group. It reads all objects, writes them
// one by one, and reads all again. If there is an error, it returns the index of the failed step.
func (r *runner) steps(ctx context.Context, j *journal.Journal, all []plan.Step, first, end int) (int, error) {
	group := all[first:end]
	present, at, err := r.read(group)
	if err != nil {
		return first + at, fmt.Errorf("%s: read: %w", group[at].Key(), err)
	}
	for i, s := range group {
		if err := r.expected(s, present[i]); err != nil {
			return first + i, err
		}
	}
	for i, s := range group {
		if err := r.make(ctx, j, first+i, s, present[i]); err != nil {
			return first + i, err
		}
	}
	got, at, err := r.read(group)
	if err != nil {
		return first + at, fmt.Errorf("%s: read back: %w", group[at].Key(), err)
	}
	at, err = -1, nil
	for i, s := range group {
		if device.Equal(got[i], s.New) || s.New == nil && implicit(s.Object()) {
			continue
		}
		if at < 0 {
			at, err = i, &MismatchError{Key: s.Key(), When: "read back", Want: s.New, Found: got[i]}
		}
		// The object does not have the written value. The journal must not take that for a change by
		// another program.
		if jerr := j.Undo(first + i); jerr != nil {
			err = errors.Join(err, jerr)
		}
	}
	if err != nil {
		return first + at, err
	}
	if err := r.steady(); err != nil {
		return end - 1, err
	}
	for _, s := range group {
		r.report.Done = append(r.report.Done, s.Key())
	}
	return end - 1, j.Done(end - 1)
}

// steady returns an error if a device is gone or does not have its name from the journal.
func (r *runner) steady() error {
	if r.follow == nil {
		return nil
	}
	return r.follow.steady()
}

// read returns the present values of the steps' objects. If there is an error, at is the index of
// an object that could not be read.
func (r *runner) read(steps []plan.Step) (present []device.Object, at int, err error) {
	objects := make([]device.Object, len(steps))
	for i, s := range steps {
		objects[i] = s.Object()
	}
	return r.readAll(objects)
}

// readAll returns the present values of objects of one kind, with fewer calls than one for each
// if k is a ManyReader. If there is an error, at is the index of an object that could not be
// read.
func (r *runner) readAll(objects []device.Object) (present []device.Object, at int, err error) {
	if m, ok := r.k.(ManyReader); ok && len(objects) > 1 {
		present, err = m.ReadMany(objects)
		if err == nil && len(present) != len(objects) {
			err = fmt.Errorf("%d values of %d objects", len(present), len(objects))
		}
		return present, 0, err
	}
	present = make([]device.Object, len(objects))
	for i, o := range objects {
		if present[i], err = r.k.Read(o); err != nil {
			return nil, i, err
		}
	}
	return present, 0, nil
}

// expected returns an error if the object does not have the step's Old value. A step that removes
// an object also fails if other objects depend on it.
func (r *runner) expected(s plan.Step, present device.Object) error {
	made := s.Old == nil && present != nil && (maker(s.Object()) != nil || r.resized[queueDevice(s.Object())])
	if !device.Equal(present, s.Old) && !made {
		return &MismatchError{Key: s.Key(), When: "changed since the plan was made", Want: s.Old, Found: present}
	}
	if s.New == nil {
		return r.unoccupied(present)
	}
	return nil
}

func (r *runner) make(ctx context.Context, j *journal.Journal, i int, s plan.Step, present device.Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.opts.tell(Event{Key: s.Key(), Index: i, Total: len(j.Head().Plan.Steps)})
	if err := j.Begin(i); err != nil {
		return err
	}
	if err := r.write(present, s.New); err != nil {
		return fmt.Errorf("%s: %w", s.Key(), err)
	}
	return nil
}

// write writes want. It skips the write if the value is already there. It does not remove an
// implicit object, except two kinds, which it sets to the defaults of the kernel or driver. A NAPI's
// configuration is kept for the next queue with this number (net/core/dev.c: napi_restore_config).
// A driver's parameter stays while the classes do.
func (r *runner) write(present, want device.Object) error {
	outlives := false
	switch present.(type) {
	case device.NAPIConfig, device.DriverParam:
		outlives = true
	}
	if device.Equal(present, want) || want == nil && implicit(present) && !outlives {
		return nil
	}
	return r.k.Write(present, want)
}

// unoccupied returns an error if other objects depend on o.
func (r *runner) unoccupied(o device.Object) error {
	who, err := r.occupants(o)
	if err == nil && len(who) > 0 {
		err = &OccupiedError{Key: o.Key(), Occupants: who}
	}
	return err
}

// occupants returns a text for each object that depends on o.
func (r *runner) occupants(o device.Object) ([]string, error) {
	oc, ok := r.k.(Occupier)
	if !ok || o == nil {
		return nil, nil
	}
	who, err := oc.Occupants(o)
	if err != nil {
		err = fmt.Errorf("%s: read the objects that depend on it: %w", o.Key(), err)
	}
	return who, err
}

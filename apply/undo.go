// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/plan"
)

// An OccupiedError is an object that cannot be removed because of what hangs
// on it.
type OccupiedError struct {
	Key       string
	Occupants []string
}

// Error implements error.
func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s: not niclane's, and removed together with it: %s", e.Key, strings.Join(e.Occupants, "; "))
}

// A task brings one object back.
type task struct {
	key string
	// want is the value to restore, expect the one that niclane left.
	want, expect device.Object
	// loose says that the present value may be anything: a write was begun
	// and not seen to end.
	loose bool
	// begin and end record.
	begin, end func() error
}

func (t *task) object() device.Object {
	if t.expect != nil {
		return t.expect
	}
	return t.want
}

// undoSteps undoes the steps of j that were begun, last first.
func (r *runner) undoSteps(j *journal.Journal, steps []plan.Step) {
	var tasks []*task
	for i, state := range slices.Backward(j.Steps()) {
		if state == journal.StepPending {
			continue
		}
		tasks = append(tasks, &task{
			key: steps[i].Key(), want: steps[i].Old, expect: steps[i].New,
			loose: state == journal.StepUncertain,
			begin: func() error { return j.Undo(i) },
			end:   func() error { return j.Undone(i) },
		})
	}
	r.restoreAll(tasks)
}

// restoreAll does the tasks in order. What fails is tried again after the
// others, as long as that gets anything further: an object that moved between
// two generations may be in use by one that is restored after it.
func (r *runner) restoreAll(tasks []*task) {
	total := len(tasks)
	for len(tasks) > 0 {
		var failed []*task
		var left []Left
		blocked := map[string]bool{}
		for _, t := range tasks {
			if blocked[t.key] {
				// A later change of the same object still stands.
				failed = append(failed, t)
				continue
			}
			r.opts.tell(Event{Key: t.key, Undo: true, Index: len(r.report.Undone), Total: total})
			if l := r.restore(t); l != nil {
				blocked[t.key] = true
				failed, left = append(failed, t), append(left, *l)
			}
		}
		if len(failed) == len(tasks) {
			r.report.Left = append(r.report.Left, left...)
			return
		}
		tasks = failed
	}
}

// restore brings one object back; it returns why it was left, or nil.
func (r *runner) restore(t *task) *Left {
	present, err := r.k.Read(t.object())
	switch {
	case vanished(err):
		return r.gone(t)
	case err != nil:
		return &Left{Key: t.key, Why: err.Error()}
	case device.Equal(present, t.want):
		return r.finish(t)
	case t.want == nil && implicit(present):
		// It goes together with what made it, whose turn comes later.
		if err := r.write(present, nil); err != nil && !vanished(err) {
			return &Left{Key: t.key, Why: err.Error()}
		}
		return r.finish(t)
	case present == nil && !creatable(t.object()):
		return r.absent(t)
	case t.expect == nil && implicit(present):
		// What made it has just been restored.
	case !t.loose && !r.opts.Force && !device.Equal(present, t.expect):
		return &Left{Key: t.key, Foreign: true, Why: fmt.Sprintf("somebody else changed it: niclane wrote %s, found %s, before niclane %s",
			Text(t.expect), Text(present), Text(t.want))}
	}
	return r.rewrite(t, present)
}

func (r *runner) rewrite(t *task, present device.Object) *Left {
	if t.want == nil {
		if err := r.unoccupied(present); err != nil {
			var occupied *OccupiedError
			return &Left{Key: t.key, Why: err.Error(), Foreign: errors.As(err, &occupied)}
		}
	}
	if err := t.begin(); err != nil {
		// Undoing is worth more than the record of it, which only says
		// that what is found may be on its way.
		r.warn(err)
	}
	t.loose = true
	if err := r.write(present, t.want); vanished(err) {
		return r.gone(t)
	} else if err != nil {
		return &Left{Key: t.key, Why: err.Error()}
	}
	got, err := r.k.Read(t.object())
	switch {
	case vanished(err):
		return r.gone(t)
	case err != nil:
		return &Left{Key: t.key, Why: fmt.Sprintf("read back: %v", err)}
	case !device.Equal(got, t.want):
		e := MismatchError{Key: t.key, When: "read back", Want: t.want, Found: got}
		return &Left{Key: t.key, Why: e.Error()}
	}
	return r.finish(t)
}

func (r *runner) finish(t *task) *Left {
	if err := t.end(); err != nil {
		r.warn(err)
	}
	r.report.Undone = append(r.report.Undone, t.key)
	return nil
}

// absent handles an object that is not there and cannot be made by writing it:
// gone, unless what makes it is there and may yet be restored.
func (r *runner) absent(t *task) *Left {
	if m := maker(t.object()); m != nil {
		present, err := r.k.Read(m)
		if err != nil && !vanished(err) {
			return &Left{Key: t.key, Why: err.Error()}
		}
		if present != nil {
			return &Left{Key: t.key, Why: fmt.Sprintf("want %s, found none, because %s is %s", Text(t.want), m.Key(), Text(present))}
		}
	}
	if dev := queueDevice(t.object()); r.resized[dev] {
		// Its queue comes back with the channels, if they do.
		present, err := r.k.Read(device.Channels{Dev: dev})
		if err == nil && present != nil {
			return &Left{Key: t.key, Why: fmt.Sprintf("want %s, found none, with channels %s", Text(t.want), Text(present))}
		}
	}
	return r.gone(t)
}

// gone ends a task whose object exists no more.
func (r *runner) gone(t *task) *Left {
	if err := t.end(); err != nil {
		r.warn(err)
	}
	r.report.Gone = append(r.report.Gone, t.key)
	return nil
}

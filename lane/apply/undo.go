// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/internal/kernel/load"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// An OccupiedError says that an object cannot be removed because other objects
// depend on it.
type OccupiedError struct {
	Key       string
	Occupants []string
}

// Error implements error.
func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s: %s", e.Key, e.why())
}

func (e *OccupiedError) why() string {
	return "not niclane's, and removed together with it: " + strings.Join(e.Occupants, "; ")
}

// A task restores one object.
type task struct {
	key string
	// want is the value to restore, expect the value that niclane left.
	want, expect device.Object
	// loose says that the present value may be anything: a write to next was
	// begun and its end was not recorded.
	loose bool
	next  device.Object
	// ended says that the end is recorded, before the read-back.
	ended bool
	// begin and end write to the journal.
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
			next: steps[i].New, loose: state == journal.StepUncertain,
			begin: func() error { return j.Undo(i) },
			end:   func() error { return j.Undone(i) },
		})
	}
	r.restoreAll(tasks)
}

// restoreAll does the tasks in order. It tries failed ones again after the
// others while that makes progress: an object that moved between two
// generations may be in use by one that is restored later. It repeats transient
// failures, such as lack of memory or a missing answer, a few times even
// without progress.
func (r *runner) restoreAll(tasks []*task) {
	stuck := 0
	total := len(tasks)
	r.tasks = tasks
	r.report.Objects = total
	for len(tasks) > 0 {
		var failed []*task
		var left []Left
		blocked := map[string]bool{}
		for rest := tasks; len(rest) > 0; {
			if blocked[rest[0].key] {
				// A later change of the same object is not undone yet.
				failed, rest = append(failed, rest[0]), rest[1:]
				continue
			}
			n := together(rest, blocked)
			for i, l := range r.restore(rest[:n], total) {
				if l != nil {
					blocked[l.Key] = true
					failed, left = append(failed, rest[i]), append(left, *l)
				}
			}
			rest = rest[n:]
		}
		if len(failed) == len(tasks) {
			stuck++
			if stuck == undoAgain || !slices.ContainsFunc(left, func(l Left) bool { return l.transient }) {
				r.report.Left = append(r.report.Left, left...)
				return
			}
		}
		tasks = failed
	}
}

// undoAgain is the most rounds without progress.
const undoAgain = 4

// leave returns the report of an object that is left.
func leave(key string, err error) *Left {
	return &Left{Key: key, Why: err.Error(), transient: load.Transient(err)}
}

// together returns the number of leading tasks that form a group: different
// objects of one kind, read together before the first write and after the last,
// as in apply.
func together(tasks []*task, blocked map[string]bool) int {
	seen := map[string]bool{}
	for n, t := range tasks {
		if n > 0 && (t.object().Kind() != tasks[0].object().Kind() || seen[t.key] || blocked[t.key] || alone(t)) {
			return n
		}
		if alone(t) {
			return 1
		}
		seen[t.key] = true
	}
	return len(tasks)
}

// alone reports whether an object must be read just before it is written: it
// comes and goes with others of its kind, or it is removed and may have
// occupants.
func alone(t *task) bool {
	switch t.object().(type) {
	case device.Qdisc, device.Class:
		return true
	}
	return t.want == nil && !device.Matches(t.object())
}

// restore restores a group of objects. It returns, for each, why it was left,
// or nil.
func (r *runner) restore(tasks []*task, total int) []*Left {
	left := make([]*Left, len(tasks))
	var written []int
	values, errs := r.readTasks(tasks)
	for i, t := range tasks {
		r.opts.tell(Event{Key: t.key, Undo: true, Index: len(r.report.Undone) + len(written), Total: total})
		var wrote bool
		if wrote, left[i] = r.begin(t, values[i], errs[i]); wrote {
			written = append(written, i)
		}
	}
	var again []*task
	for _, i := range written {
		again = append(again, tasks[i])
	}
	values, errs = r.readTasks(again)
	for n, i := range written {
		left[i] = r.end(tasks[i], values[n], errs[n])
	}
	return left
}

// readTasks returns the present value of each task's object, or why it could
// not be read.
func (r *runner) readTasks(tasks []*task) ([]device.Object, []error) {
	failed := func(err error) ([]device.Object, []error) {
		return make([]device.Object, len(tasks)), slices.Repeat([]error{err}, len(tasks))
	}
	for range lookAgain {
		if _, err := r.look(); err != nil {
			return failed(err)
		}
		values, errs := r.readOnce(tasks)
		if changed, err := r.look(); err != nil {
			return failed(err)
		} else if !changed {
			return values, errs
		}
	}
	return failed(errors.New("its device is renamed faster than it can be read"))
}

// lookAgain is the most times that objects are read again because their device
// was renamed meanwhile.
const lookAgain = 5

func (r *runner) readOnce(tasks []*task) ([]device.Object, []error) {
	objects, errs := make([]device.Object, len(tasks)), make([]error, len(tasks))
	for i, t := range tasks {
		objects[i] = t.object()
	}
	if values, _, err := r.readAll(objects); err == nil {
		return values, errs
	}
	// Read one by one: one of several devices may be gone.
	values := make([]device.Object, len(tasks))
	for i, o := range objects {
		values[i], errs[i] = r.k.Read(o)
	}
	return values, errs
}

// begin writes the value to restore, if a write is needed. Otherwise the task
// ends, or the object is left.
func (r *runner) begin(t *task, present device.Object, err error) (wrote bool, left *Left) {
	switch {
	case vanished(err):
		return false, r.gone(t)
	case err != nil:
		return false, leave(t.key, err)
	case device.Equal(present, t.want):
		return false, r.finish(t)
	case t.want == nil && implicit(present):
		// It goes together with its maker, which is restored later.
		if err := r.write(present, nil); err != nil && !vanished(err) {
			return false, leave(t.key, err)
		}
		return false, r.finish(t)
	case present == nil && !device.Made(t.object()):
		return false, r.absent(t)
	case t.expect == nil && implicit(present):
		// Its maker has just been restored.
	case t.loose && t.want == nil && !r.opts.Force && (device.Matches(present) || another(present, t.next)) &&
		!device.Equal(present, t.expect) && !device.Equal(present, t.next):
		// The kernel makes and removes it in one step: niclane's own is gone.
		r.warn(fmt.Errorf("%s: left: niclane's own (%s) is gone, and another program has made one (%s)", t.key,
			Text(t.object()), Text(present)))
		return false, r.finish(t)
	case !t.loose && !r.opts.Force && !device.Equal(present, t.expect):
		wrote, found := Texts(t.expect, present)
		return false, &Left{Key: t.key, Foreign: true, Why: fmt.Sprintf("another program changed it: niclane wrote "+
			"%s, found %s, before niclane %s",
			wrote, found, Text(t.want))}
	}
	return r.rewrite(t, present)
}

func (r *runner) rewrite(t *task, present device.Object) (wrote bool, left *Left) {
	var theirs []string
	if t.want == nil {
		who, err := r.occupants(present)
		if err != nil {
			return false, leave(t.key, err)
		}
		theirs = r.others(present, who)
		switch {
		case len(who) == 0 || r.opts.Force:
		case len(theirs) == 0:
			return false, &Left{Key: t.key, Why: "objects of niclane that depend on it are left: " + strings.Join(who, "; ")}
		default:
			return false, &Left{Key: t.key, Foreign: true, Why: (&OccupiedError{t.key, theirs}).why()}
		}
		if !t.loose && !device.Equal(present, t.expect) {
			theirs = append(theirs, fmt.Sprintf("%s, in its place", Text(present)))
		}
	}
	if err := t.begin(); err != nil {
		// Undoing is more important than its record, which only says that the
		// value may be between the old and the new one.
		r.warn(err)
	}
	t.loose = true
	if e, ok := r.k.(Evictor); ok && len(theirs) > 0 {
		evicted, err := e.Evict(present, theirs)
		r.removed(t, evicted)
		if err != nil {
			return false, leave(t.key, err)
		}
		theirs = slices.DeleteFunc(theirs, func(w string) bool { return slices.Contains(evicted, w) })
	}
	if err := r.write(present, t.want); vanished(err) {
		return false, r.gone(t)
	} else if err != nil {
		return false, leave(t.key, err)
	}
	r.removed(t, theirs)
	if t.want == nil {
		// After the kernel has removed it, a new object belongs to another
		// program, also after a kill from here on.
		r.record(t)
	}
	return true, nil
}

// removed reports other programs' objects that were removed.
func (r *runner) removed(t *task, who []string) {
	for _, w := range who {
		r.report.Removed = append(r.report.Removed, t.key+": "+w)
	}
}

// others returns the occupants of o that are not niclane's.
func (r *runner) others(o device.Object, who []string) []string {
	if len(who) == 0 {
		return nil
	}
	mine := map[string]bool{}
	for _, t := range r.tasks {
		if device.DeviceOf(t.object()) != device.DeviceOf(o) {
			continue
		}
		mine[t.key] = true
		switch o := t.object().(type) {
		case device.Class:
			mine["class "+o.ID] = true
		case device.Qdisc:
			mine[fmt.Sprintf("%s %s at %s", o.Type, o.Handle, o.Parent)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(who), func(w string) bool { return mine[w] })
}

// end checks the value that was read back after a write.
func (r *runner) end(t *task, got device.Object, err error) *Left {
	switch {
	case vanished(err):
		return r.gone(t)
	case err != nil:
		return leave(t.key, fmt.Errorf("read back: %w", err))
	case !device.Equal(got, t.want):
		if t.ended { // it was not removed after all
			if t.ended, err = false, t.begin(); err != nil {
				r.warn(err)
			}
		}
		e := MismatchError{Key: t.key, When: "read back", Want: t.want, Found: got}
		return &Left{Key: t.key, Why: e.Error()}
	}
	return r.finish(t)
}

func (r *runner) finish(t *task) *Left {
	r.record(t)
	r.report.Undone = append(r.report.Undone, t.key)
	return nil
}

// absent handles an absent object that cannot be made by writing it. It is
// gone, unless its maker is there and may still be restored.
func (r *runner) absent(t *task) *Left {
	if m := maker(t.object()); m != nil {
		present, err := r.k.Read(m)
		if err != nil && !vanished(err) {
			return leave(t.key, err)
		}
		if present != nil {
			return &Left{Key: t.key, Why: fmt.Sprintf("want %s, found none, because %s is %s", Text(t.want), m.Key(),
				Text(present))}
		}
	}
	if dev := queueDevice(t.object()); r.resized[dev] {
		// Its queue comes back if the channels do.
		present, err := r.k.Read(device.Channels{Dev: dev})
		if err == nil && present != nil {
			return &Left{Key: t.key, Why: fmt.Sprintf("want %s, found none, with channels %s", Text(t.want),
				Text(present))}
		}
	}
	return r.gone(t)
}

// gone ends a task whose object no longer exists.
func (r *runner) gone(t *task) *Left {
	r.record(t)
	r.report.Gone = append(r.report.Gone, t.key)
	return nil
}

// record records the end of a task.
func (r *runner) record(t *task) {
	if t.ended {
		return
	}
	if err := t.end(); err != nil {
		r.warn(err)
		return
	}
	t.ended = true
}

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

// An OccupiedError says that an object cannot be removed, because objects of other programs
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

// A task is one object to restore.
type task struct {
	key string
	// want is the value to restore. expect is the value that niclane has written.
	want, expect device.Object
	// loose says that the present value may be any value: a write of next has begun, and the journal
	// does not say whether it ended.
	loose bool
	next  device.Object
	// ended says that the journal has the end of the task, although the object was not read back
	// yet.
	ended bool
	// begin and end write the begin and the end of the task to the journal.
	begin, end func() error
}

func (t *task) object() device.Object {
	if t.expect != nil {
		return t.expect
	}
	return t.want
}

// undoSteps undoes those steps of j that were begun. It begins with the last one.
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

// restoreAll does the tasks in order. After a round, it tries the failed tasks again if at least
// one task has succeeded: an object may be in use by another one that is restored later. After
// transient failures, such as lack of memory or a missing answer, it tries again a few times even
// if none has succeeded.
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
				// The object has a later change that could not be undone yet.
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

// undoAgain is the largest number of rounds in which no task succeeds.
const undoAgain = 4

// leave returns the Left for an object that could not be restored because of err.
func leave(key string, err error) *Left {
	return &Left{Key: key, Why: err.Error(), transient: load.Transient(err)}
}

// together returns how many tasks at the start of the list form a group: different objects of one
// kind, which are read together before the first write and after the last, as in apply.
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

// alone reports whether a task must be a group of its own, with its object read just before the
// write. Either a write of another object of its kind can change the object, or the task removes
// it and other objects may depend on it.
func alone(t *task) bool {
	switch t.object().(type) {
	case device.Qdisc, device.Class:
		return true
	}
	return t.want == nil && !device.Matches(t.object())
}

// restore restores a group of objects. For each, it returns nil or the Left with the reason why
// it was not restored.
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

// readTasks returns the present value of each task's object, or the error of reading it.
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

// lookAgain is how often objects are read again because a device was renamed during the reading.
const lookAgain = 5

func (r *runner) readOnce(tasks []*task) ([]device.Object, []error) {
	objects, errs := make([]device.Object, len(tasks)), make([]error, len(tasks))
	for i, t := range tasks {
		objects[i] = t.object()
	}
	if values, _, err := r.readAll(objects); err == nil {
		return values, errs
	}
	// Read one by one: if there are several devices, only one may be gone.
	values := make([]device.Object, len(tasks))
	for i, o := range objects {
		values[i], errs[i] = r.k.Read(o)
	}
	return values, errs
}

// begin writes the value to restore, if that is necessary. If not, it ends the task or returns a
// Left.
func (r *runner) begin(t *task, present device.Object, err error) (wrote bool, left *Left) {
	switch {
	case vanished(err):
		return false, r.gone(t)
	case err != nil:
		return false, leave(t.key, err)
	case device.Equal(present, t.want):
		return false, r.finish(t)
	case t.want == nil && implicit(present):
		// The kernel removes it together with its maker, which is restored later.
		if err := r.write(present, nil); err != nil && !vanished(err) {
			return false, leave(t.key, err)
		}
		return false, r.finish(t)
	case present == nil && !device.Made(t.object()):
		return false, r.absent(t)
	case t.expect == nil && implicit(present):
		// Its maker has just been restored, and the kernel has made the object with it.
	case t.loose && t.want == nil && !r.opts.Force && (device.Matches(present) || another(present, t.next)) &&
		!device.Equal(present, t.expect) && !device.Equal(present, t.next):
		// The kernel makes and removes such an object in one step. So niclane's object is gone, and
		// this is another program's.
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
	if t.want == nil || device.Replaces(present, t.want) {
		who, err := r.occupants(present)
		if err != nil {
			return false, leave(t.key, err)
		}
		theirs = r.others(present, who)
		switch {
		case len(who) == 0 || r.opts.Force:
		case len(theirs) == 0:
			return false, &Left{Key: t.key, Why: "objects of niclane that depend on it are left: " +
				"" + strings.Join(who, "; ")}
		default:
			return false, &Left{Key: t.key, Foreign: true, Why: (&OccupiedError{t.key, theirs}).why()}
		}
		if !t.loose && !device.Equal(present, t.expect) {
			theirs = append(theirs, fmt.Sprintf("%s, in its place", Text(present)))
		}
	}
	if err := t.begin(); err != nil {
		// The undo is more important than its record. The record only says that the value may be the
		// old or the new one.
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
		// The kernel has removed niclane's object. From now on, an object with this key belongs to
		// another program, even if niclane is killed at this point.
		r.record(t)
	}
	return true, nil
}

// removed adds to the report the objects of other programs that were removed.
func (r *runner) removed(t *task, who []string) {
	for _, w := range who {
		r.report.Removed = append(r.report.Removed, t.key+": "+w)
	}
}

// others returns the objects that depend on o and are not niclane's. who describes all objects
// that depend on o, each by a text.
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

// end compares the value that was read back after the write with the value to restore.
func (r *runner) end(t *task, got device.Object, err error) *Left {
	switch {
	case vanished(err):
		return r.gone(t)
	case err != nil:
		return leave(t.key, fmt.Errorf("read back: %w", err))
	case !device.Equal(got, t.want):
		if t.ended { // the object was not removed: its task has not ended
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

// absent ends the task of an object that does not exist and that no write can make. If its maker
// or its queue can still be restored, it returns a Left, so that the task is tried again.
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
		// The queue of the object is made again if the channels are restored later.
		present, err := r.k.Read(device.Channels{Dev: dev})
		if err == nil && present != nil {
			return &Left{Key: t.key, Why: fmt.Sprintf("want %s, found none, with channels %s", Text(t.want),
				Text(present))}
		}
	}
	return r.gone(t)
}

// gone ends the task of an object that no longer exists.
func (r *runner) gone(t *task) *Left {
	r.record(t)
	r.report.Gone = append(r.report.Gone, t.key)
	return nil
}

// record writes the end of a task to the journal.
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

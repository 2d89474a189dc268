// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A Journal is the journal of one lanes file. It is not safe for concurrent use. A caller that
// records into it must hold the writers' lock.
type Journal struct {
	head   Head
	events []event

	store *Store   // nil: in memory only
	name  string   // file name in store
	file  *os.File // open for recording after the first record
	size  int64    // length of the whole lines
	torn  bool     // a part of a line follows them

	damage string // what could not be read
	lost   int    // unreadable lines of records and steps

	owned *recordsAt // Records for the present events
}

// New returns a journal that exists only in memory, for dry runs and tests.
func New(h Head) *Journal { return &Journal{head: h} }

// Head returns the head of the journal. The caller must not change it.
func (j *Journal) Head() *Head { return &j.head }

// Encode returns the journal's bytes, as in its file.
func (j *Journal) Encode() ([]byte, error) {
	b, err := encodeHead(&j.head)
	for _, e := range j.events {
		b = e.append(b)
	}
	return b, err
}

// Path returns the path of the file, "" if the journal exists only in memory.
func (j *Journal) Path() string {
	if j.store == nil {
		return ""
	}
	return j.store.path(j.name)
}

// Begin records that step i of the plan will be written next. It also means that the step that
// was begun before was written.
func (j *Journal) Begin(i int) error { return j.record(event{verb: stepBegun, step: i}) }

// Done records that step i was written and that its object was read back.
func (j *Journal) Done(i int) error { return j.record(event{verb: stepDone, step: i}) }

// Undo records that step i will be undone next.
func (j *Journal) Undo(i int) error { return j.record(event{verb: undoBegun, step: i}) }

// Undone records that the object of step i has its old value again: it was read back, or the
// kernel has confirmed its removal. A later Undo of the step replaces that.
func (j *Journal) Undone(i int) error { return j.record(event{verb: undoDone, step: i}) }

// Restore records that the object will be set to its original value next.
func (j *Journal) Restore(key string) error { return j.record(event{verb: restoreNext, key: key}) }

// Restored records that the object has its original value again: it was read back, or the kernel
// has confirmed its removal.
func (j *Journal) Restored(key string) error { return j.record(event{verb: restoreDone, key: key}) }

// End records that the apply has ended and that all its steps were made.
func (j *Journal) End() error { return j.record(event{verb: ended}) }

// Ended reports whether all steps of the plan were made.
func (j *Journal) Ended() bool {
	return slices.ContainsFunc(j.events, func(e event) bool { return e.verb == ended })
}

// RolledBack reports whether a rollback of this lanes file has begun. Records then returns the
// objects that are not restored yet.
func (j *Journal) RolledBack() bool {
	return slices.ContainsFunc(j.events, func(e event) bool { return e.verb == restoreNext || e.verb == restoreDone })
}

// Partly reports whether only some steps of the plan are made. Then an apply, or its undo, was
// killed, has failed in part, or is still running.
func (j *Journal) Partly() bool {
	undoing := slices.ContainsFunc(j.events, func(e event) bool { return e.verb == undoBegun || e.verb == undoDone })
	return (!j.Ended() || undoing) && slices.ContainsFunc(j.Steps(), func(s StepState) bool { return s != StepPending })
}

// record appends e to the file. If that fails, for example on a full disk, e still counts for
// this process. Only the begin of a step does not: the caller then does not make the step.
func (j *Journal) record(e event) (err error) {
	if j.store != nil {
		err = j.append(e.append(nil))
	}
	if err != nil {
		err = fmt.Errorf("journal: %w", err)
	}
	if err == nil || e.verb != stepBegun {
		j.events = append(j.events, e)
	}
	return err
}

// history yields the recorded events, and those that they imply: when a step begins, the step
// that was begun before it was written.
func (j *Journal) history() iter.Seq[event] {
	return func(yield func(event) bool) {
		begun := -1
		for _, e := range j.events {
			if e.verb == stepBegun && begun >= 0 && !yield(event{verb: stepDone, step: begun}) {
				return
			}
			begun = -1
			if e.verb == stepBegun {
				begun = e.step
			}
			if !yield(e) {
				return
			}
		}
	}
}

// A StepState is the progress of one step of this generation.
type StepState int

// The states of a step.
const (
	StepPending   StepState = iota // never begun, or undone
	StepUncertain                  // begun, or its undo begun; no end recorded
	StepDone
)

// Steps returns the state of each step of this generation's plan.
func (j *Journal) Steps() []StepState {
	out := make([]StepState, len(j.head.Plan.Steps))
	for e := range j.history() {
		switch e.verb {
		case stepBegun, undoBegun:
			out[e.step] = StepUncertain
		case stepDone:
			out[e.step] = StepDone
		case undoDone:
			out[e.step] = StepPending
		}
	}
	return out
}

// Records returns the objects that niclane owns, in the order of the first write: those of
// earlier generations, and those that this generation has begun to write. Objects that certainly
// have their original value again are left out. The caller must not change the records.
func (j *Journal) Records() []Record {
	if j.owned == nil || j.owned.events != len(j.events) {
		r := newReplay(&j.head, j.events)
		for e := range j.history() {
			r.event(e)
		}
		j.owned = &recordsAt{len(j.events), r.owned()}
	}
	return slices.Clip(j.owned.records)
}

// AppendOwned adds the records to o, which is the form that planning needs.
func (j *Journal) AppendOwned(o plan.Owned) plan.Owned {
	records := j.Records()
	o.Records, o.Keys = slices.Grow(o.Records, len(records)), slices.Grow(o.Keys, len(records))
	for _, r := range records {
		o.Records = append(o.Records, r.Record)
		o.Keys = append(o.Keys, r.Key())
	}
	return o
}

// recordsAt are the records after the given number of events.
type recordsAt struct {
	events  int
	records []Record
}

// A replay computes records from events.
type replay struct {
	steps []plan.Step
	keys  []string // keys of the steps that have events
	// recs are the records in the order of the first write. If an object is made again after its
	// removal, its record moves to the end, and an empty record stays in the old place. An empty
	// record counts as restored.
	recs []Record
	at   map[string]int // index in recs of each key that has an event
	// whose are the earlier owners of an object, by key. The undo of a step makes the last one of
	// these the owner again.
	whose map[string][]owner
	// left is niclane's value after the undo of a step, by step. It is needed if that undo is itself
	// cancelled.
	left map[int]device.Object
}

// An owner is the part and the config path that asked for an object. held says that niclane owned
// the object then; last is the value that niclane had written.
type owner struct {
	part  device.Part
	cause string
	last  device.Object
	held  bool
}

// newReplay returns a replay with the records before the first event. It makes an index only of
// keys that have an event: usually, only one of a thousand members changes.
func newReplay(h *Head, events []event) *replay {
	r := &replay{steps: h.Plan.Steps, keys: make([]string, len(h.Plan.Steps)), whose: map[string][]owner{},
		left: map[int]device.Object{}}
	named := make(map[string]bool, min(len(events), len(h.Plan.Steps)))
	for _, e := range events {
		switch e.verb {
		case stepBegun, stepDone, undoBegun, undoDone:
			if r.keys[e.step] == "" {
				r.keys[e.step] = r.steps[e.step].Key()
				named[r.keys[e.step]] = true
			}
		case restoreNext, restoreDone:
			named[e.key] = true
		}
	}
	r.recs = append(make([]Record, 0, len(h.Before)+len(named)), h.Before...)
	r.at = make(map[string]int, len(named))
	for i := range r.recs {
		key := r.recs[i].Key()
		r.recs[i].key = key
		if !named[key] {
			continue
		}
		if before, ok := r.at[key]; ok {
			r.recs[before] = Record{}
		}
		r.at[key] = i
	}
	return r
}

// find returns the record of an object for a change, nil if the object has none. The pointer is
// valid until the next call of add.
func (r *replay) find(key string) *Record {
	if i, ok := r.at[key]; ok {
		r.recs[i].line = ""
		return &r.recs[i]
	}
	return nil
}

func (r *replay) add(key string, rec Record) *Record {
	if i, ok := r.at[key]; ok {
		r.recs[i] = Record{}
	}
	rec.key = key
	r.at[key] = len(r.recs)
	r.recs = append(r.recs, rec)
	return &r.recs[len(r.recs)-1]
}

func (r *replay) event(e event) {
	switch e.verb {
	case stepBegun, stepDone, undoBegun, undoDone:
		r.step(e.verb, e.step)
	case restoreNext:
		if rec := r.find(e.key); rec != nil {
			rec.Uncertain = true
			if rec.Last == nil && rec.Original == nil {
				rec.Last = rec.removed
			}
		}
	case restoreDone:
		if rec := r.find(e.key); rec != nil {
			rec.removed = rec.Object()
			rec.Last, rec.Next, rec.Uncertain = rec.Original, nil, false
		}
	}
}

func (r *replay) step(v verb, i int) {
	key, s := r.keys[i], r.steps[i]
	rec := r.find(key)
	if v == stepBegun {
		if rec != nil && !rec.restored() {
			r.whose[key] = append(r.whose[key], owner{rec.Part, rec.Cause, rec.Last, true})
		} else if len(r.whose[key]) > 0 {
			r.whose[key] = append(r.whose[key], owner{})
		}
	}
	// If an object is made again after its removal, its record moves to the end: the object may need
	// objects that are newer than its first record.
	if rec == nil || v == stepBegun && rec.restored() {
		rec = r.add(key, Record{Record: plan.Record{Original: s.Old, Last: s.Object(), Part: s.Part, Cause: s.Cause}})
	}
	switch v {
	case stepBegun, undoBegun:
		rec.Uncertain = true
		if rec.Last == nil && rec.Original == nil {
			rec.Last = s.Object() // made again, or made by an earlier generation
		}
		if rec.Next = s.New; v == undoBegun {
			rec.Next = s.Old
		}
		if device.Equal(rec.Next, rec.Last) || device.Equal(rec.Next, rec.Original) {
			rec.Next = nil
		}
	case stepDone:
		rec.Last, rec.Next, rec.Uncertain = s.New, nil, false
		if s.New != nil { // the new owner
			rec.Part, rec.Cause = s.Part, s.Cause
		}
	case undoDone:
		rec.Next, rec.Uncertain = nil, false
		if last, again := r.left[i]; again {
			rec.Last = last
			break
		}
		rec.Last = s.Old
		if c := r.whose[key]; len(c) > 0 {
			if last := c[len(c)-1]; last.held {
				// The value that the step found may be that of another program. niclane's own value is the
				// one that niclane wrote before.
				rec.Part, rec.Cause, rec.Last = last.part, last.cause, last.last
			}
			r.whose[key] = c[:len(c)-1]
		}
		r.left[i] = rec.Last
	}
}

func (r *replay) owned() []Record {
	out := slices.DeleteFunc(r.recs, func(rec Record) bool { return rec.restored() })
	if len(out) == 0 {
		return nil
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/journal"
)

// RollbackOptions are the options of Rollback. The zero value undoes everything that was applied
// in this network namespace.
type RollbackOptions struct {
	// Of is a lanes file, or a device that a file governs; "" for all.
	Of string
	// Choose, if not nil, selects the journals to undo. It replaces Of.
	Choose func([]*journal.Journal) ([]*journal.Journal, error)
	// Force says to restore objects even if other programs have changed them.
	Force bool
	// Last undoes only the last apply of the file Of. If Of is "", it undoes the last apply of any
	// file.
	Last bool
	// Wait says to wait until another apply has ended, or ctx ends.
	Wait bool
}

// A RolledBack is the result of the rollback of one file.
type RolledBack struct {
	Config  string        `json:"config"`
	Devices []string      `json:"devices"`
	Report  *apply.Report `json:"report"`
	Error   string        `json:"error,omitempty"`
}

// Rollback restores the state before niclane from the journals. It also works after a failure, a
// kill or a crash. If objects could not be restored, the error is not nil and the reports name
// them. If the result is nil, an error came before anything was undone.
func (e *Engine) Rollback(ctx context.Context, o RollbackOptions) (done []RolledBack, err error) {
	lock, err := e.lock(ctx, o.Wait)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	defer e.Memory.lock()()
	e.Memory.clear()
	s, here, err := e.existing()
	if err != nil {
		return nil, err
	}
	if s == nil { // check the caller's choice even if there is nothing to undo
		if _, err := o.choose(nil); err != nil {
			return nil, err
		}
		return []RolledBack{}, nil
	}
	defer s.Close()
	all, broken := e.undoable(s, here, o.Force)
	js, err := o.choose(slices.Clone(all))
	if err != nil {
		return nil, errors.Join(broken, err)
	}
	k, err := apply.NewKernel(e.RunDir)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	done = []RolledBack{}
	var errs []error
	if len(js) == len(all) {
		errs = append(errs, broken)
	}
	for _, j := range js {
		r, err := e.undo(ctx, k, j, here, o)
		done, errs = append(done, r), append(errs, err)
	}
	return done, errors.Join(errs...)
}

func (o RollbackOptions) choose(js []*journal.Journal) ([]*journal.Journal, error) {
	switch {
	case o.Choose != nil:
		return o.Choose(js)
	case o.Last:
		return latest(js, o.Of)
	}
	return named(js, o.Of)
}

// undo undoes one journal, or only its last apply.
func (e *Engine) undo(ctx context.Context, k apply.Kernel, j *journal.Journal, here journal.Host,
	o RollbackOptions) (RolledBack, error) {
	h := j.Head()
	if d := j.Damage(); d != "" {
		e.warn(fmt.Sprintf("journal %s: %s", j.Path(), d))
	}
	r := RolledBack{Config: h.Config, Devices: h.Devices}
	var err error
	if options := (apply.Options{Force: o.Force}); o.Last && h.SameBoot(here) {
		r.Report, err = apply.Undo(k, j, options)
	} else {
		r.Report, err = apply.Rollback(ctx, k, j, here, options)
	}
	if err != nil {
		r.Error = err.Error()
		return r, err
	}
	if len(j.Records()) > 0 && !r.Report.Rebooted {
		return r, nil
	}
	err = e.forget(h.Devices)
	if kept := j.Kept(); kept != "" {
		err = errors.Join(err, fmt.Errorf("the changes on the unreadable lines stay as they are: look into %s, and "+
			"remove it", kept))
	}
	return r, err
}

// undoable returns the journals that can be undone, and an error for those that cannot be read.
// With force, it also returns the readable parts of damaged journals. It removes files without
// records.
func (e *Engine) undoable(s *journal.Store, here journal.Host, force bool) (js []*journal.Journal, broken error) {
	e.tidy(s)
	js, broken = s.List()
	if force && broken != nil {
		var more []*journal.Journal
		more, broken = s.Salvage()
		js = append(js, more...)
	}
	return slices.DeleteFunc(js, func(j *journal.Journal) bool { return elsewhere(j, here) }), broken
}

// tidy removes files without records. An error only gives a warning: rollback must also work if
// the directory is read-only.
func (e *Engine) tidy(s *journal.Store) {
	notes, err := s.Tidy()
	e.warn(notes...)
	if err != nil {
		e.warn(err.Error())
	}
}

// Only returns a function for Choose. It selects the journal of the lanes file with this name, or
// none if nothing of the file is applied.
func Only(name string) func([]*journal.Journal) ([]*journal.Journal, error) {
	return func(js []*journal.Journal) ([]*journal.Journal, error) {
		return slices.DeleteFunc(js, func(j *journal.Journal) bool { return j.Head().Config != name }), nil
	}
}

// named returns the journal of a lanes file or of a device. For "", it returns all.
func named(js []*journal.Journal, of string) ([]*journal.Journal, error) {
	if of == "" {
		return js, nil
	}
	name, err := Name(of)
	if err != nil {
		name = of // of is a file that no longer exists, or a device
	}
	var have []string
	for _, j := range js {
		h := j.Head()
		if h.Config == name || h.Config == of || slices.Contains(h.Devices, of) || bondOf(h) == of {
			return []*journal.Journal{j}, nil
		}
		have = append(have, h.Config)
	}
	return nil, fmt.Errorf("nothing was applied from %s, nor to a device of that name (applied here: %v)", of, have)
}

// latest returns the journal of the last apply of a lanes file or device; of any for "".
func latest(js []*journal.Journal, of string) ([]*journal.Journal, error) {
	js, err := named(js, of)
	if err != nil || len(js) == 0 {
		return nil, err
	}
	slices.SortStableFunc(js, func(a, b *journal.Journal) int { return b.Head().When.Compare(a.Head().When) })
	j, h := js[0], js[0].Head()
	switch {
	case len(js) > 1 && js[1].Head().When.Equal(h.When):
		return nil, fmt.Errorf("rollback --last: %s and %s were changed in the same second: name one of them", h.Config,
			js[1].Head().Config)
	case j.RolledBack():
		return nil, fmt.Errorf("rollback --last: a rollback of all of %s has begun: niclane rollback %s goes on "+
			"with that", h.Config, h.Config)
	case j.Damage() != "" && len(h.Before) > 0:
		return nil, fmt.Errorf("rollback --last: the journal of %s is damaged (%s): niclane rollback %s takes all "+
			"of it away", h.Config, j.Damage(), h.Config)
	case !j.Revertible():
		return nil, fmt.Errorf("rollback --last: the state before the last change of %s is not on record: "+
			"the change before it was undone, or is of another kind; niclane rollback %s takes all of it away",
			h.Config, h.Config)
	}
	return js[:1], nil
}

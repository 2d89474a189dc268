// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// trialLanes makes the lanes of a trial's files on this host. It implements trial.Switcher.
type trialLanes struct {
	engine *engine.Engine
	files  []*engine.File // those of the variants after the first
	within time.Duration  // when a switch is undone if this process dies
	marks
	devices map[string]int // by name: the index at the start
	keeps   []*apply.Lock  // no watch may repair the lanes meanwhile
	guard   *trialGuard
	now     int  // the variant in force
	left    bool // the last Undo has failed
	expect  map[string]stamp
}

// A stamp identifies the last apply of a file. The zero value: nothing of the file is applied.
type stamp struct {
	generation, pid int
	when            int64
}

// stamps reads the stamps of the trial's files.
func (l *trialLanes) stamps() (map[string]stamp, error) {
	js, err := l.engine.Journals()
	out := map[string]stamp{}
	for _, j := range js {
		if h := j.Head(); slices.ContainsFunc(l.files, func(f *engine.File) bool { return f.Name == h.Config }) {
			out[h.Config] = stamp{h.Generation, h.Who.PID, h.When.Unix()}
		}
	}
	return out, err
}

// settled notes what this process has left in force.
func (l *trialLanes) settled(err error) error {
	now, serr := l.stamps()
	l.expect = now
	return errors.Join(err, serr)
}

// marks say which changes are the trial's: those of this process. A mark also says what was in force
// before.
type marks struct {
	// PID is the trial's process. Before has the generation of each file's journal before the trial, by
	// the file's name; 0: nothing of the file was applied.
	PID    int            `json:"pid"`
	Before map[string]int `json:"before"`
}

// errNotOurs means that another program has applied or undone lanes during the trial.
var errNotOurs = errors.New("another program has applied or undone lanes of the trial's files")

// mark reads what is in force now.
func (l *trialLanes) mark() error {
	js, err := l.engine.Journals()
	if err != nil {
		return err
	}
	l.marks = marks{PID: os.Getpid(), Before: map[string]int{}}
	for _, f := range l.files {
		l.Before[f.Name] = 0
		if j := journalOf(js, f.Name); j != nil {
			if !j.Ended() || j.RolledBack() {
				return fmt.Errorf("an apply or a rollback of %s was not finished: niclane rollback %[1]s first", f.Name)
			}
			l.Before[f.Name] = j.Head().Generation
		}
	}
	l.devices = map[string]int{}
	for _, f := range l.files {
		for _, dev := range f.Devices() {
			i, err := net.InterfaceByName(dev)
			if err != nil {
				return fmt.Errorf("device %s: %w", dev, err)
			}
			l.devices[dev] = i.Index
		}
	}
	return l.settled(nil)
}

func journalOf(js []*journal.Journal, name string) *journal.Journal {
	for _, j := range js {
		if j.Head().Config == name {
			return j
		}
	}
	return nil
}

// keep makes this process the keeper of the devices, so that no watch changes the lanes meanwhile.
func (l *trialLanes) keep() error {
	for dev := range l.devices {
		k, err := l.engine.LockWatch(dev)
		if locked, ok := errors.AsType[*apply.LockedError](err); ok {
			return fmt.Errorf("%s is watched by process %d (%s), which would repair lanes that the trial takes away: "+
				"stop it for the time of the trial", dev, locked.Holder.PID, strings.Join(locked.Holder.Command, " "))
		}
		if err != nil {
			return err
		}
		l.keeps = append(l.keeps, k)
	}
	return nil
}

func (l *trialLanes) close() {
	for _, k := range l.keeps {
		_ = k.Unlock() // the kernel releases it with the process
	}
	if l.guard != nil {
		l.guard.end(l.left)
	}
}

// disruptive returns the steps of a plan that can lose packets.
func disruptive(p *plan.Plan) (out []plan.Step) {
	for _, s := range p.Steps {
		if s.Disruptive {
			out = append(out, s)
		}
	}
	return out
}

// prepare makes the disruptive steps of a file, once.
func (l *trialLanes) prepare(ctx context.Context, f *engine.File) error {
	_, err := l.engine.Apply(ctx, f, engine.ApplyOptions{Only: func(s plan.Step) bool { return s.Disruptive }})
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return l.settled(nil)
}

// Switch implements trial.Switcher.
func (l *trialLanes) Switch(ctx context.Context, variant int) error {
	if l.now > 0 {
		// Not even an interruption leaves lanes half undone.
		if err := l.takeAway(context.WithoutCancel(ctx), l.files[l.now-1]); err != nil {
			return err
		}
		l.now = 0
	}
	if variant == 0 {
		return ctx.Err()
	}
	l.now = variant
	r, err := l.engine.Apply(ctx, l.files[variant-1], engine.ApplyOptions{Within: l.within})
	if err != nil {
		return err
	}
	if r.Report == nil {
		return fmt.Errorf("%s: %w: its lanes are in force already", l.files[variant-1].Name, errNotOurs)
	}
	return l.settled(nil)
}

// takeAway undoes the last apply of a file.
func (l *trialLanes) takeAway(ctx context.Context, f *engine.File) error {
	_, err := l.engine.Rollback(ctx, engine.RollbackOptions{Of: f.Name, Last: true})
	if err != nil {
		return err
	}
	return l.settled(nil)
}

// Check implements trial.Switcher.
func (l *trialLanes) Check(ctx context.Context) error {
	for dev, index := range l.devices {
		if i, err := net.InterfaceByName(dev); err != nil || i.Index != index {
			return fmt.Errorf("device %s is gone, or another one has its name now", dev)
		}
	}
	now, err := l.stamps()
	if err != nil {
		return err
	}
	for i, f := range l.files {
		switch {
		case now[f.Name] == l.expect[f.Name]:
		case i+1 == l.now:
			return fmt.Errorf("%w: %s is no longer in force, by niclane rollback or because it was not confirmed "+
				"within %v", errNotOurs, f.Name, l.within)
		default:
			return fmt.Errorf("%w: %s is not as before the trial", errNotOurs, f.Name)
		}
	}
	if l.now == 0 {
		return nil
	}
	name := l.files[l.now-1].Name
	views, err := l.engine.Look(ctx, func(j *journal.Journal) bool { return j.Head().Config == name })
	if err != nil {
		return err
	}
	for _, v := range views {
		for _, x := range v.Findings {
			if x.Severity == verify.Drift {
				return fmt.Errorf("another program has changed the lanes during the trial: %s: want %s, found %s",
					x.Key, x.Want, x.Found)
			}
		}
	}
	return nil
}

// Undo implements trial.Switcher.
func (l *trialLanes) Undo(ctx context.Context) error {
	err := l.restore(ctx, l.engine)
	l.left = err != nil
	if err == nil {
		l.now = 0
		_ = apply.CheckPending(l.engine.RunDir) // the guardian of the last apply ends when it is asked
	}
	return err
}

// restore undoes all changes of the trial's process, and no other ones.
func (m marks) restore(ctx context.Context, e *engine.Engine) error {
	const generations = 2 // those that a trial makes of one file
	for range generations * max(1, len(m.Before)) {
		js, err := e.Journals()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(js, func(j *journal.Journal) bool {
			_, is := m.Before[j.Head().Config]
			return is && j.Head().Who.PID == m.PID
		})
		if i < 0 {
			return nil
		}
		name := js[i].Head().Config
		o := engine.RollbackOptions{Choose: engine.Only(name), Wait: true}
		if m.Before[name] > 0 {
			o = engine.RollbackOptions{Of: name, Last: true, Wait: true}
		}
		if _, err := e.Rollback(ctx, o); err != nil {
			return fmt.Errorf("%w; niclane rollback %s tries again", err, name)
		}
	}
	return nil
}

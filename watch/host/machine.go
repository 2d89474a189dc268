// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/verify"
	"github.com/niclane/niclane/watch"
)

// lookAgain is the largest number of looks in one call of Look. Look repeats a look if there are
// more objects to watch than before.
const lookAgain = 5

var errFast = errors.New("devices change faster than niclane can read them")

// A Watcher subscribes to kernel notifications: *notify.Source. grown means that the subscription
// has more objects than before.
type Watcher interface {
	Watch(in notify.Interest) (grown bool, err error)
}

// A Machine gives a keeper of lanes access to this host. It implements watch.Machine.
type Machine struct {
	Engine *engine.Engine
	// Source subscribes to kernel notifications. nil: without notifications.
	Source Watcher
	// Report gets those events that the Machine finds, and not the keeper.
	Report func(watch.Event)
	// Config is the only lanes file to keep; "": all files.
	Config string
	// Alone makes this process the only keeper of its devices. Look then skips the lanes that another
	// process keeps.
	Alone bool
	// locks are the locks that this process holds, by device. An entry is nil if another keeper has
	// that lock.
	locks map[string]*apply.Lock
	names names
}

// Close releases the locks.
func (m *Machine) Close() error {
	var errs []error
	for _, l := range m.locks {
		if l != nil {
			errs = append(errs, l.Unlock())
		}
	}
	return errors.Join(errs...)
}

// lock makes this process the only keeper of a device, or returns an error that names the other
// keeper.
func (m *Machine) lock(dev string) error {
	if m.locks[dev] != nil {
		return nil
	}
	l, err := m.Engine.LockWatch(dev)
	if locked, ok := errors.AsType[*apply.LockedError](err); ok {
		return fmt.Errorf("%s is watched already: process %d (%s), since %s; a device has one watch",
			dev, locked.Holder.PID, strings.Join(locked.Holder.Command, " "), locked.Holder.Since.Format(time.RFC3339))
	}
	if err == nil {
		m.hold(dev, l)
	}
	return err
}

func (m *Machine) hold(dev string, l *apply.Lock) {
	if m.locks == nil {
		m.locks = map[string]*apply.Lock{}
	}
	m.locks[dev] = l
}

// LockAll makes this process the only keeper of the devices of all applied lanes. If another
// process keeps one of them, LockAll returns an error.
func (m *Machine) LockAll() error {
	js, err := m.Journals()
	if err != nil {
		return err
	}
	if len(js) == 0 {
		m.Report(watch.Event{Time: time.Now(), Kind: watch.Waiting,
			Text: "no lanes are applied here: lanes that are applied from now on are kept"})
	}
	for _, j := range js {
		for _, dev := range j.Head().Devices {
			if err := m.lock(dev); err != nil {
				return err
			}
		}
	}
	return nil
}

// Journals returns the journals of the lanes that this process must keep.
func (m *Machine) Journals() ([]*journal.Journal, error) {
	js, err := m.Engine.Journals()
	return slices.DeleteFunc(js, func(j *journal.Journal) bool { return !m.keeps(j) }), err
}

// keeps reports whether the lanes of a journal must be kept.
func (m *Machine) keeps(j *journal.Journal) bool {
	return (m.Config == "" || j.Head().Config == m.Config) && !j.RolledBack()
}

// ours reports whether this process is the only keeper of all devices of a journal.
func (m *Machine) ours(j *journal.Journal) bool {
	for _, dev := range j.Head().Devices {
		err := m.lock(dev)
		if err == nil {
			continue
		}
		if _, said := m.locks[dev]; !said {
			m.hold(dev, nil)
			m.Report(watch.Event{Time: time.Now(), Kind: watch.Notice, Config: j.Head().Config, Device: dev,
				Text: err.Error()})
		}
		return false
	}
	return true
}

// Look implements watch.Machine.
func (m *Machine) Look(ctx context.Context) ([]watch.View, error) {
	for range lookAgain {
		views, grown, err := m.look(ctx)
		if err != nil || !grown {
			return views, err
		}
	}
	return nil, errFast
}

func (m *Machine) look(ctx context.Context) (views []watch.View, grown bool, err error) {
	seen, err := m.Engine.Look(ctx, func(j *journal.Journal) bool { return m.keeps(j) && (!m.Alone || m.ours(j)) })
	if err != nil {
		return nil, false, err
	}
	var all notify.Interest
	for _, v := range seen {
		views = append(views, viewOf(v))
		devices := v.Journal.Head().Devices
		merge(&all, m.names.interest(interestSource{state: v.Now, devices: devices, known: v.Known, groups: v.Groups,
			owned: v.Applied.Owned}))
		if v.Applied.Bond != "" { // a bond notifies when slaves join or leave
			merge(&all, notify.Interest{Devices: []string{v.Applied.Bond}})
		}
	}
	merge(&all, notify.Interest{Dirs: []string{m.Engine.StateDir}, Births: []string{m.Engine.StateDir}})
	if m.Source == nil {
		return views, false, nil
	}
	grown, err = m.Source.Watch(all)
	return views, grown, err
}

// viewOf returns what a keeper needs to decide about the lanes of v.
func viewOf(v *engine.View) watch.View {
	h := v.Journal.Head()
	out := watch.View{
		Config: h.Config, Generation: v.Since, Ground: ground(v.Now),
		Waits: waits(h.Devices, v.Now, v.Applied.Displaced),
	}
	for _, f := range v.Findings {
		if f.Severity == verify.Drift {
			out.Drifts = append(out.Drifts, f)
		}
	}
	return out
}

func merge(all *notify.Interest, in notify.Interest) {
	all.Devices = append(all.Devices, in.Devices...)
	all.Indexes = append(all.Indexes, in.Indexes...)
	all.Files = append(all.Files, in.Files...)
	all.Dirs = append(all.Dirs, in.Dirs...)
	all.Births = append(all.Births, in.Births...)
	all.PIDs = append(all.PIDs, in.PIDs...)
}

// Hold implements watch.Machine.
func (m *Machine) Hold(context.Context) (func(), error) { return m.Engine.Hold() }

// Repair implements watch.Machine.
func (m *Machine) Repair(ctx context.Context, name string, leave func(string) bool) (engine.Repair, error) {
	return m.Engine.Repair(ctx, name, leave)
}

// Release implements watch.Machine.
func (m *Machine) Release(_ context.Context, name string, missing []verify.Finding) ([]string, error) {
	return m.Engine.Release(name, missing)
}

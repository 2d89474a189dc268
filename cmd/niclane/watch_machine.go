// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/verify"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/host"
)

// lookAgain bounds how often the machine is looked at once more because what is
// of interest has changed meanwhile.
const lookAgain = 5

// A machine is this host, as a watch sees it.
type machine struct {
	a      *app
	source *notify.Source
	report func(stay.Event)
	// config is the one file that is kept, "" for all.
	config string
	// first of its devices.
	first string
	// claims are the locks of the devices, nil where another watch has it.
	claims map[string]*apply.Lock
	names  host.Names
}

func (m *machine) close() error {
	var errs []error
	for _, l := range m.claims {
		if l != nil {
			errs = append(errs, l.Unlock())
		}
	}
	if m.source != nil {
		errs = append(errs, m.source.Close())
	}
	return errors.Join(errs...)
}

// claim makes this process the device's one watch.
func (m *machine) claim(dev string) error {
	if m.claims[dev] != nil {
		return nil
	}
	st, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	l, err := apply.TryLockNamed(m.a.runDir, fmt.Sprintf("watch-%d-%s.lock", inode(st), dev))
	var locked *apply.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("%s is watched already: process %d (%s), since %s; a device has one watch",
			dev, locked.Holder.PID, strings.Join(locked.Holder.Command, " "), locked.Holder.Since.Format(time.RFC3339))
	}
	if err == nil {
		m.claims[dev] = l
	}
	return err
}

// claimAll claims the devices of all that is applied.
func (m *machine) claimAll() error {
	js, err := m.journals()
	if err != nil {
		return err
	}
	if len(js) == 0 {
		m.report(stay.Event{Time: time.Now(), Kind: stay.Waiting, Text: "no lanes are applied here: what is applied from now on is kept"})
	}
	for _, j := range js {
		for _, dev := range j.Head().Devices {
			if err := m.claim(dev); err != nil {
				return err
			}
		}
	}
	return nil
}

// journals are those of this boot and namespace that are kept.
func (m *machine) journals() ([]*journal.Journal, error) {
	s, err := m.a.openStore()
	if s == nil || err != nil {
		return nil, err
	}
	defer s.Close()
	js, err := s.Here()
	return slices.DeleteFunc(js, func(j *journal.Journal) bool {
		return m.config != "" && j.Head().Config != m.config || j.RolledBack()
	}), err
}

// ours leaves out what another watch keeps.
func (m *machine) ours(js []*journal.Journal) []*journal.Journal {
	return slices.DeleteFunc(js, func(j *journal.Journal) bool {
		for _, dev := range j.Head().Devices {
			err := m.claim(dev)
			if err == nil {
				continue
			}
			if _, said := m.claims[dev]; !said {
				m.claims[dev] = nil
				m.report(stay.Event{Time: time.Now(), Kind: stay.Notice, Config: j.Head().Config, Device: dev, Text: err.Error()})
			}
			return true
		}
		return false
	})
}

// Look implements stay.Machine.
func (m *machine) Look(ctx context.Context) ([]stay.View, error) {
	for range lookAgain {
		views, grown, err := m.look(ctx)
		if err != nil || !grown {
			return views, err
		}
	}
	return nil, errors.New("devices change faster than they can be looked at")
}

func (m *machine) look(ctx context.Context) (views []stay.View, grown bool, err error) {
	js, err := m.journals()
	if err != nil {
		return nil, false, err
	}
	js = m.ours(js)
	var all notify.Interest
	for _, j := range js {
		h := j.Head()
		groups := groupsOf(j)
		applied, st, known, err := host.Look(ctx, m.a.runDir, j, m.a.applied(h), groups)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", h.Config, err)
		}
		v := stay.View{Config: h.Config, Generation: fmt.Sprintf("%d %s", h.Generation, h.When), Ground: host.Basis(st), Waits: host.Waits(h.Devices, st, applied.Displaced)}
		for _, f := range verify.State(applied, st) {
			if f.Severity == verify.Drift {
				v.Drifts = append(v.Drifts, f)
			}
		}
		views = append(views, v)
		merge(&all, m.names.Interest(host.From{State: st, Devices: h.Devices, Known: known, Groups: groups, Owned: applied.Owned}))
		if applied.Bond != "" { // it says when slaves come and go
			merge(&all, notify.Interest{Devices: []string{applied.Bond}})
		}
	}
	merge(&all, notify.Interest{Dirs: []string{m.a.stateDir}, Births: []string{m.a.stateDir}})
	grown, err = m.source.Watch(all)
	return views, grown, err
}

func merge(all *notify.Interest, in notify.Interest) {
	all.Devices = append(all.Devices, in.Devices...)
	all.Indexes = append(all.Indexes, in.Indexes...)
	all.Files = append(all.Files, in.Files...)
	all.Dirs = append(all.Dirs, in.Dirs...)
	all.Births = append(all.Births, in.Births...)
	all.PIDs = append(all.PIDs, in.PIDs...)
}

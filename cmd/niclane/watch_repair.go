// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/config"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/plan"
	"github.com/niclane/niclane/stay"
	"github.com/niclane/niclane/verify"
)

// Hold implements stay.Machine.
func (m *machine) Hold(context.Context) (func(), error) {
	l, err := apply.TryLock(m.a.runDir)
	var locked *apply.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%w: %w", stay.ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	release := func() { _ = l.Unlock() } // the kernel lets go in any case
	if err := apply.CheckPending(m.a.runDir); err != nil {
		release()
		return nil, fmt.Errorf("%w: %w", stay.ErrBusy, err)
	}
	return release, nil
}

// Repair implements stay.Machine.
func (m *machine) Repair(ctx context.Context, name string, leave func(string) bool) (stay.Repair, error) {
	js, err := m.journals()
	if err != nil {
		return stay.Repair{}, err
	}
	i := slices.IndexFunc(js, func(j *journal.Journal) bool { return j.Head().Config == name })
	if i < 0 {
		return stay.Repair{}, nil // rolled back meanwhile
	}
	h := js[i].Head()
	f, err := config.ParseFile(h.Config, []byte(h.ConfigText))
	if err != nil {
		return stay.Repair{}, fmt.Errorf("%s as it was applied: %w", h.Config, err)
	}
	r := &request{File: f, text: []byte(h.ConfigText), config: h.Config}
	ground, err := m.a.makeGround(ctx, r, js[i], leave)
	if err != nil {
		return stay.Repair{Done: ground}, err
	}
	done, warnings, err := m.a.make(ctx, r, leave)
	return stay.Repair{Done: append(ground, done...), Warnings: warnings}, err
}

// makeGround makes again what the lanes of a journal stand on, although niclane
// did not have to write it, and apply would not: it would lay them out anew on
// what it finds. Nothing of it is niclane's after that, as before: it is as it
// was when the lanes were applied, and no business of rollback's.
func (a *app) makeGround(ctx context.Context, r *request, j *journal.Journal, leave func(key string) bool) (done []string, err error) {
	h := j.Head()
	now, known, err := observeDevices(ctx, h.Devices, cgroupsOf(r.Intent))
	if err != nil || !known {
		return nil, err
	}
	steps := ground(a.appliedBy(j), now, leave)
	if len(steps) == 0 {
		return nil, nil
	}
	k, err := apply.NewKernel()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	for _, s := range steps {
		if err := k.Write(s.Old, s.New); err != nil {
			return done, fmt.Errorf("%s: %w", s.Key(), err)
		}
		done = append(done, s.Key())
	}
	return done, nil
}

// ground returns the steps back to the channels and features that there were
// after apply, of those whose change is a drift.
func ground(applied verify.Applied, now *device.State, leave func(key string) bool) []plan.Step {
	if applied.State == nil {
		return nil
	}
	was, present := applied.State.Objects(), now.Objects()
	owned := map[string]bool{}
	for _, r := range applied.Owned {
		if r.Last != nil {
			owned[r.Last.Key()] = true
		}
	}
	var steps []plan.Step
	for _, f := range verify.State(applied, now) {
		if f.Severity != verify.Drift || leave(f.Key) {
			continue
		}
		key := f.Key
		if f.Part == device.PartQueueSet && f.Lane == "" {
			key = device.Channels{Dev: f.Device}.Key() // their number, by queues
		}
		switch o := was[key].(type) {
		case device.Channels, device.Feature:
			if now := present[key]; !owned[key] && now != nil && !device.Equal(now, o) {
				steps = append(steps, plan.Step{Old: now, New: o})
			}
		}
	}
	return steps
}

// make makes what the lanes of r lack, but no step of an object that leave
// names. The lock is held.
func (a *app) make(ctx context.Context, r *request, leave func(key string) bool) (done, warnings []string, err error) {
	here, err := journal.Here()
	if err != nil {
		return nil, nil, err
	}
	store, err := journal.Open(a.stateDir, here)
	if err != nil {
		return nil, nil, err
	}
	defer store.Close()
	p, st, err := a.plan(ctx, r, store)
	if err != nil {
		return nil, nil, err
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s plan.Step) bool { return leave(s.Key()) })
	if len(p.Steps) == 0 {
		return nil, nil, a.unchanged(store, headOf(here, r, p))
	}
	was := a.applied(p)
	report, j, err := a.run(ctx, store, headOf(here, r, p))
	if err != nil {
		return nil, report.Warnings, err
	}
	warnings = report.Warnings
	if err := a.saveRepaired(p, was, st, j.Records()); err != nil {
		warnings = append(warnings, "counters: "+err.Error())
	}
	return report.Done, warnings, nil
}

// run journals a head and makes the steps of its plan. The report is never nil.
func (a *app) run(ctx context.Context, store *journal.Store, h journal.Head) (*apply.Report, *journal.Journal, error) {
	k, err := apply.NewKernel()
	if err != nil {
		return &apply.Report{}, nil, err
	}
	defer k.Close()
	k.Prepare(h.Plan.Steps)
	j, err := store.Begin(h)
	if err != nil {
		return &apply.Report{}, nil, err
	}
	report, err := apply.Run(ctx, k, h.Plan, j, apply.Options{})
	if err != nil {
		err = undone(err, report)
	}
	return report, j, err
}

// headOf is the head of a journal of p.
func headOf(here journal.Host, r *request, p *plan.Plan) journal.Head {
	who, when := journal.Self()
	return journal.Head{
		Host: here, Config: r.config, ConfigText: string(r.text), Who: who, When: when, Devices: p.Devices, Plan: p,
	}
}

// saveRepaired records what there is after a repair: what was there after the
// apply, with the steps made. What somebody else did since stays a difference,
// and counters go on from where they are. After an apply, or where the queues
// are others, everything is recorded anew.
func (a *app) saveRepaired(p *plan.Plan, was, now *device.State, owned []journal.Record) error {
	if was == nil || slices.ContainsFunc(p.Devices, func(dev string) bool { return !sameQueues(was.Device(dev), now.Device(dev)) }) {
		return a.saveBaseline(p, now, owned)
	}
	for _, s := range p.Steps {
		if _, ok := s.Object().(device.Channels); ok {
			return a.saveBaseline(p, now, owned)
		}
	}
	return a.writeApplied(p, after(was, p.Steps, owned))
}

func sameQueues(a, b *device.Device) bool {
	return a != nil && b != nil && a.RxQueues == b.RxQueues && a.TxQueues == b.TxQueues
}

// Release implements stay.Machine: it gives NAPIs whose poller cannot be had the
// deferral of interrupts back that they had before niclane. What verify and
// rollback compare with stays what it is: the lane is not whole.
func (m *machine) Release(_ context.Context, name string, missing []verify.Finding) (released []string, err error) {
	js, err := m.journals()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(js, func(j *journal.Journal) bool { return j.Head().Config == name })
	if i < 0 {
		return nil, nil
	}
	k, err := apply.NewKernel()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	records := js[i].Records()
	for _, r := range records {
		was, ok := r.Original.(device.NAPIConfig)
		if !ok || !unpolled(records, was, missing) {
			continue
		}
		present, rerr := k.Read(was)
		now, ok := present.(device.NAPIConfig)
		if rerr != nil || !ok {
			err = errors.Join(err, rerr) // or it has no NAPI now: nothing is deferred
			continue
		}
		was.Threaded = now.Threaded
		if now == was {
			continue
		}
		if werr := k.Write(now, was); werr != nil {
			err = errors.Join(err, fmt.Errorf("%s: interrupts stay deferred: %w", was.Key(), werr))
			continue
		}
		released = append(released, was.Key())
	}
	return released, err
}

// unpolled reports whether the poller of a NAPI's queue is among what is missing.
func unpolled(records []journal.Record, n device.NAPIConfig, missing []verify.Finding) bool {
	for _, r := range records {
		p, ok := r.Last.(device.Poller)
		if !ok || p.Dev != n.Dev || !slices.Contains(p.Queues, n.Queue) {
			continue
		}
		for _, f := range missing {
			if f.Key == p.Key() || slices.Contains(f.With, p.Key()) {
				return true
			}
		}
	}
	return false
}

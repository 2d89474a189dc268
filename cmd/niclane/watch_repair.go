// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/host"
)

// Hold implements stay.Machine.
func (m *machine) Hold(context.Context) (func(), error) { return host.Hold(m.a.runDir) }

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
	ground, err := host.Restore(ctx, m.a.runDir, m.a.appliedBy(js[i]), h.Devices, groupsOf(js[i]), leave)
	if err != nil {
		return stay.Repair{Done: ground}, err
	}
	done, warnings, err := m.a.make(ctx, r, leave)
	var refused plan.Errors
	if errors.As(err, &refused) {
		var perr error
		done, warnings, perr = m.a.makePieces(ctx, r, js[i], leave)
		err = errors.Join(err, perr)
	}
	return stay.Repair{Done: append(ground, done...), Warnings: warnings}, err
}

// makePieces makes of the lanes of j what can be made where planning refuses them
// as a whole: each drift alone, so that one that fails keeps no other.
func (a *app) makePieces(ctx context.Context, r *request, j *journal.Journal, leave func(key string) bool) (done, warnings []string, err error) {
	h := j.Head()
	st, known, err := host.Observe(ctx, a.runDir, h.Devices, groupsOf(j))
	if err != nil || !known {
		return nil, nil, err
	}
	here, err := journal.Here()
	if err != nil {
		return nil, nil, err
	}
	store, err := journal.Open(a.stateDir, here)
	if err != nil {
		return nil, nil, err
	}
	defer store.Close()
	for _, steps := range host.Pieces(a.appliedBy(j), st, leave) {
		p := *h.Plan
		p.Steps, p.Forget, p.Gone = steps, nil, nil
		was := a.applied(h)
		report, made, rerr := a.run(ctx, store, headOf(here, r, &p))
		warnings = append(warnings, report.Warnings...)
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		done = append(done, report.Done...)
		if serr := a.saveRepaired(made, was, st); serr != nil {
			warnings = append(warnings, "counters: "+serr.Error())
		}
	}
	return done, warnings, err
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
	was := a.applied(&journal.Head{Plan: p})
	report, j, err := a.run(ctx, store, headOf(here, r, p))
	if err != nil {
		return nil, report.Warnings, err
	}
	warnings = report.Warnings
	if err := a.saveRepaired(j, was, st); err != nil {
		warnings = append(warnings, "counters: "+err.Error())
	}
	return report.Done, warnings, nil
}

// run journals a head and makes the steps of its plan. The report is never nil.
func (a *app) run(ctx context.Context, store *journal.Store, h journal.Head) (*apply.Report, *journal.Journal, error) {
	k, err := apply.NewKernel(a.runDir)
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
		Host: here, Config: r.config, ConfigText: string(r.text), Who: who, When: when, Devices: p.Devices, Plan: p, Undoable: true,
	}
}

// saveRepaired records what there is after a repair: what was there after the
// apply, with the steps made. What somebody else did since stays a difference,
// and counters go on from where they are. After an apply, or where the queues
// are others, everything is recorded anew.
func (a *app) saveRepaired(j *journal.Journal, was, now *device.State) error {
	p := j.Head().Plan
	if was == nil || slices.ContainsFunc(p.Devices, func(dev string) bool { return !sameQueues(was.Device(dev), now.Device(dev)) }) {
		return a.saveBaseline(j, now)
	}
	for _, s := range p.Steps {
		if _, ok := s.Object().(device.Channels); ok {
			return a.saveBaseline(j, now)
		}
	}
	return a.writeApplied(j.Head(), after(was, p.Steps, j.Records()))
}

func sameQueues(a, b *device.Device) bool {
	return a != nil && b != nil && a.RxQueues == b.RxQueues && a.TxQueues == b.TxQueues
}

// Release implements stay.Machine. What verify and rollback compare with stays what
// it is: the lane is not whole.
func (m *machine) Release(_ context.Context, name string, missing []verify.Finding) (released []string, err error) {
	js, err := m.journals()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(js, func(j *journal.Journal) bool { return j.Head().Config == name })
	if i < 0 {
		return nil, nil
	}
	return host.Release(m.a.runDir, js[i].Records(), missing)
}

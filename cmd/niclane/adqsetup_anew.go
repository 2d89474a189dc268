// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// applyOrAnew applies as niclane apply does. Where the device cannot go from the
// lanes that it has to these (a card's traffic classes are made all at once), the
// ones of before are taken away first, as adqsetup does always: but only if the
// plan of these, without them, stands.
func (r *adqRun) applyOrAnew(ctx context.Context, req *request) error {
	err := r.apply(ctx, req, r.within)
	if !errors.As(err, new(plan.Errors)) {
		return err
	}
	undo, _, perr := r.anew(ctx, req)
	if perr != nil || len(undo) == 0 {
		return err
	}
	fmt.Fprintln(r.stdout, "the lanes of before are taken away first: the device cannot change them as they are")
	if err := r.rollbackChosen(ctx, undoing{}, func(js []*journal.Journal) (ours []*journal.Journal, _ error) {
		for _, j := range js {
			if j.Head().Config == req.config {
				ours = append(ours, j)
			}
		}
		return ours, nil
	}); err != nil {
		return err
	}
	if err := r.apply(ctx, req, r.within); err != nil {
		return fmt.Errorf("%w\nthe lanes of before are gone: niclane apply %s makes them again", err, req.config)
	}
	return nil
}

// preview prints what applyOrAnew would do.
func (r *adqRun) preview(ctx context.Context, req *request) error {
	store, err := r.openStore()
	if err != nil {
		return err
	}
	p, _, err := r.plan(ctx, req, store)
	if errors.As(err, new(plan.Errors)) {
		undo, anew, perr := r.anew(ctx, req)
		if perr == nil && len(undo) > 0 {
			plan.WriteText(r.stdout, undo)
			p, err = anew, nil
		}
	}
	if err != nil || len(p.Steps) == 0 {
		return err
	}
	if err := r.warnLifeline(p); err != nil {
		return err
	}
	r.printPlan(p)
	return exitCode{code: exitPending}
}

// anew plans req as if what it owns were undone, and gives the undoing. There is
// none where it owns nothing.
func (r *adqRun) anew(ctx context.Context, req *request) (undo []plan.Step, p *plan.Plan, err error) {
	store, err := r.openStore()
	if err != nil {
		return nil, nil, err
	}
	owned, err := ownedBy(store, req.config)
	if err != nil || len(owned.Records) == 0 {
		return nil, nil, err
	}
	st, err := r.observeFor(ctx, req.Intent)
	if err == nil {
		st, err = r.observeLeft(ctx, req.Intent, st, owned)
	}
	if err != nil {
		return nil, nil, err
	}
	undo = plan.Undo(st, owned.Owned)
	var changes []device.Change
	for _, s := range undo {
		changes = append(changes, device.Change{Old: s.Old, New: s.New})
	}
	p, err = plan.Make(req.Intent, st.After(changes), plan.Owned{})
	return undo, p, err
}

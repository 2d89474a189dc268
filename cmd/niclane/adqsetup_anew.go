// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/plan"
)

// applyOrAnew applies lanes as niclane apply does. Some devices cannot change from their present
// lanes to the new ones, because a card makes all its traffic classes at once. applyOrAnew then
// rolls the present lanes back first, as adqsetup always does. It does so only if the planner
// accepts the new lanes on the device without lanes.
func (r *adqRun) applyOrAnew(ctx context.Context, req *request) error {
	err := r.apply(ctx, req, r.within)
	if !errors.As(err, new(plan.Errors)) {
		return err
	}
	undo, _, perr := r.Engine().PlanAnew(ctx, req.file())
	if perr != nil || len(undo) == 0 {
		return err
	}
	fmt.Fprintln(r.Stdout, "the previous lanes are rolled back first: the device cannot change them in place")
	if err := r.rollback(ctx, engine.RollbackOptions{Choose: engine.Only(req.config)}); err != nil {
		return err
	}
	if err := r.apply(ctx, req, r.within); err != nil {
		return fmt.Errorf("%w\nthe previous lanes are gone: niclane apply %s makes them again", err, req.config)
	}
	return nil
}

// preview prints the steps that applyOrAnew would make, and makes none.
func (r *adqRun) preview(ctx context.Context, req *request) error {
	var p *plan.Plan
	planned, err := r.Engine().Plan(ctx, req.file())
	if err == nil {
		p = planned.Plan
	}
	if errors.As(err, new(plan.Errors)) {
		undo, anew, perr := r.Engine().PlanAnew(ctx, req.file())
		if perr == nil && len(undo) > 0 {
			plan.WriteText(r.Stdout, undo)
			p, err = anew, nil
		}
	}
	if err != nil || len(p.Steps) == 0 {
		return err
	}
	if err := r.warnLifeline(p); err != nil {
		return err
	}
	if err := r.printPlan(p, false); err != nil {
		return err
	}
	return cli.ExitCode{Code: cli.ExitPending}
}

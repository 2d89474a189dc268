// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

func (a *app) applyCommand() *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make the lanes in FILE, and undo everything if a step fails",
		Long: `Apply makes the plan for FILE step by step. Each step is journalled before it is
made and read back after it. When one fails, what was done is undone, and the
machine is as it was.

With --confirm-within, a process of its own undoes this change after that time
unless niclane confirm comes first: also when this command, the login it runs
in, or the connection that the login came through are gone by then. Where a
device carries the default route or this login, apply makes no step without
--confirm-within; 0 makes them for good.`,
		Args: exactly(1, "one lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if within != 0 && within < time.Second {
				return usagef("apply: --confirm-within %v: want at least 1s, or 0 for no undoing", within)
			}
			r, err := readRequest(args[0])
			if err != nil {
				return err
			}
			if err := checkUnit(r); err != nil {
				return err
			}
			r.planned = a.warnLifeline
			if !cmd.Flags().Changed("confirm-within") {
				r.planned = keepLifeline
			}
			if err := needRoot("apply"); err != nil {
				return err
			}
			a.noteUnconfirmed()
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.apply(ctx, r, within)
		},
	}
	cmd.Flags().DurationVar(&within, "confirm-within", 0, "undo after this time unless confirmed (\"60s\"); 0: never")
	return cmd
}

// applied is what apply prints as JSON.
type applied struct {
	Plan *plan.Plan `json:"plan"`
	// Report is absent when there was nothing to do.
	Report  *apply.Report `json:"report,omitempty"`
	Journal string        `json:"journal,omitempty"`
	// ConfirmBy is when everything is undone unless confirmed.
	ConfirmBy *time.Time `json:"confirmBy,omitempty"`
	Error     string     `json:"error,omitempty"`
}

func (a *app) apply(ctx context.Context, r *request, within time.Duration) error {
	lock, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	here, err := journal.Here()
	if err != nil {
		return err
	}
	store, err := journal.Open(a.stateDir, here)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := apply.CheckPending(a.runDir); err != nil {
		return err
	}
	a.tidy(store)
	p, st, err := a.plan(ctx, r, store)
	if err != nil {
		return err
	}
	if len(p.Steps) == 0 {
		if err := a.unchanged(store, headOf(here, r, p)); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(applied{Plan: p})
		}
		fmt.Fprintln(a.stdout, "nothing to do: the machine is as the file says"+goneText(p))
		return nil
	}
	if r.planned != nil {
		if err := r.planned(p); err != nil {
			return err
		}
	}
	for _, s := range p.Steps {
		if s.Disruptive && !a.json {
			fmt.Fprintf(a.stdout, "%s: packets in flight can be lost\n", s.Reason)
		}
	}
	k, err := apply.NewKernel(a.runDir)
	if err != nil {
		return err
	}
	defer k.Close()
	k.Prepare(p.Steps)
	j, err := store.Begin(headOf(here, r, p))
	if err != nil {
		return err
	}
	guard, err := a.guard(j, within)
	if err != nil {
		return errors.Join(err, discard(j))
	}
	report, err := apply.Run(ctx, k, p, j, apply.Options{})
	result := applied{Plan: p, Report: report, Journal: j.Path()}
	if err != nil {
		err = guard.failed(err)
		if a.json {
			result.Error = err.Error()
			if perr := a.printJSON(result); perr != nil {
				return perr
			}
		}
		return undone(err, report)
	}
	if err := a.saveBaseline(j, st); err != nil {
		report.Warnings = append(report.Warnings, "counters: "+err.Error())
	}
	if result.ConfirmBy, err = guard.ended(); err != nil {
		report.Warnings = append(report.Warnings, "guardian: "+err.Error())
	}
	if a.json {
		return a.printJSON(result)
	}
	for _, w := range report.Warnings {
		fmt.Fprintln(a.stderr, "niclane: warning:", w)
	}
	last := ""
	if j.Head().Generation > 1 {
		last = " --last"
	}
	fmt.Fprintf(a.stdout, "%s made; niclane rollback%s undoes them%s\n", count(len(report.Done), "step"), last, goneText(p))
	if d := result.ConfirmBy; d != nil {
		fmt.Fprintf(a.stdout, "undone at %s unless niclane confirm comes first\n", d.Format(time.TimeOnly))
	}
	return nil
}

// unchanged records a plan without steps where it says something new. What is gone,
// with its device or by somebody's hand, and not wanted is off the record: verify and rollback have nothing to say about
// it any more. Rates that are what they were although a bond sends by other slaves
// (a card's, or ceilings above the links) are right for these from now on.
func (a *app) unchanged(store *journal.Store, h journal.Head) error {
	if len(h.Plan.Forget) == 0 && len(h.Plan.Sharing) == 0 {
		return nil
	}
	all, err := store.Here()
	if err != nil {
		return err
	}
	var was *device.State
	var sharing []string
	for _, old := range all {
		if old.Head().Config == h.Config {
			was, sharing = a.applied(old.Head()), old.Head().Plan.Sharing
		}
	}
	if len(h.Plan.Forget) == 0 && slices.Equal(h.Plan.Sharing, sharing) {
		return nil
	}
	j, err := store.Begin(h)
	if err != nil {
		return err
	}
	if err := discard(j); err != nil || len(j.Records()) == 0 {
		return err
	}
	if was != nil {
		if err := a.writeApplied(j.Head(), was); err != nil {
			return err
		}
	}
	return j.End()
}

// goneText says which devices are gone, if any are.
func goneText(p *plan.Plan) string {
	switch len(p.Gone) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; %s is gone, and what niclane had made there", p.Gone[0])
	}
	return fmt.Sprintf("; %s are gone, and what niclane had made there", strings.Join(p.Gone, ", "))
}

// discard removes a journal of whose plan no step was made.
func discard(j *journal.Journal) error {
	switch {
	case len(j.Records()) == 0:
		return j.Remove()
	case j.AllUndone(): // an earlier generation still owns something
		return j.Revert()
	}
	return nil
}

// undone adds to the error of a failed apply what became of the machine.
func undone(err error, r *apply.Report) error {
	if len(r.Left) == 0 {
		return fmt.Errorf("%w\nthe machine is as it was before", err)
	}
	return fmt.Errorf("%w\n%s could not be undone: niclane rollback --last tries again", err, count(len(r.Left), "object"))
}

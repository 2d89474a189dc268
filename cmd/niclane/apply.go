// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/plan"
)

func (a *app) applyCommand() *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make the lanes in FILE, and undo everything if a step fails",
		Long: `Apply makes the plan for FILE step by step. It writes each step to the journal before
it makes the step, and reads the result back. If a step fails, apply undoes all
steps, and the machine is as before.

With --confirm-within, a separate process undoes this change after that time unless
niclane confirm comes first. It does so even if this command, its login or the login's
connection has ended. If a device carries the default route or this login, apply makes
no step without --confirm-within. --confirm-within 0 makes the lanes for good.`,
		Args: cli.Exactly(1, "one lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if within != 0 && within < time.Second {
				return cli.Usagef("apply: --confirm-within %v: want at least 1s, or 0 for no undoing", within)
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
			if err := cli.NeedRoot("apply"); err != nil {
				return err
			}
			a.noteUnconfirmed()
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return a.apply(ctx, r, within)
		},
	}
	cli.TimeVar(cmd.Flags(), &within, "confirm-within", "undo after this time unless niclane confirm "+
		"comes first (\"60s\"); 0: never; without this option: never, and refuse to change the device of the default "+
		"route or of this login")
	return cmd
}

// applyOutput is the JSON output of apply.
type applyOutput struct {
	Plan *plan.Plan `json:"plan"`
	// Report is absent if the plan had no steps.
	Report  *apply.Report `json:"report,omitempty"`
	Journal string        `json:"journal,omitempty"`
	// ConfirmBy is the latest time for a confirmation. Without one, niclane then undoes everything.
	ConfirmBy *time.Time `json:"confirmBy,omitempty"`
	Error     string     `json:"error,omitempty"`
}

func (a *app) apply(ctx context.Context, r *request, within time.Duration) error {
	made, err := a.Engine().Apply(ctx, r.file(), engine.ApplyOptions{Within: within, Planned: func(p *plan.Plan) error {
		if r.planned != nil {
			if err := r.planned(p); err != nil {
				return err
			}
		}
		for _, s := range p.Steps {
			if s.Disruptive && !a.JSON {
				fmt.Fprintf(a.Stdout, "%s: packets in flight can be lost\n", s.Reason)
			}
		}
		return nil
	}})
	if err != nil && (made == nil || made.Report == nil) {
		return err
	}
	if a.JSON {
		result := applyOutput{Plan: made.Plan, Report: made.Report, Journal: made.Journal, ConfirmBy: made.ConfirmBy}
		if failed, ok := errors.AsType[*engine.FailedError](err); ok {
			result.Error = failed.Err.Error()
		}
		if perr := a.PrintJSON(result); perr != nil {
			return perr
		}
	}
	if err != nil || a.JSON {
		return err
	}
	if made.Report == nil {
		fmt.Fprintln(a.Stdout, "nothing to do: the machine is as the file says"+goneText(made.Plan))
		return nil
	}
	for _, w := range made.Report.Warnings {
		a.Warn(w)
	}
	last := ""
	if made.Again {
		last = " --last"
	}
	fmt.Fprintf(a.Stdout, "%s made; niclane rollback%s undoes them%s\n", cli.Plural(len(made.Report.Done), "step"),
		last, goneText(made.Plan))
	if d := made.ConfirmBy; d != nil {
		fmt.Fprintf(a.Stdout, "undone at %s unless niclane confirm comes first\n", d.Format(time.TimeOnly))
	}
	return nil
}

// goneText returns a text with the devices of a plan that no longer exist. If all exist, it returns
// "".
func goneText(p *plan.Plan) string {
	switch len(p.Gone) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; %s is gone, with everything that niclane made there", p.Gone[0])
	}
	return fmt.Sprintf("; %s are gone, with everything that niclane made there", strings.Join(p.Gone, ", "))
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/lifeline"
	"github.com/niclane/niclane/lane/plan"
)

func (a *app) confirmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "confirm",
		Short: "Keep what apply --confirm-within has made",
		Args:  cli.Exactly(0, "none"),
		RunE: func(*cobra.Command, []string) error {
			if err := cli.NeedRoot("confirm"); err != nil {
				return err
			}
			if err := a.Engine().Confirm(); err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(confirmOutput{true})
			}
			fmt.Fprintln(a.Stdout, "confirmed: the lanes stay")
			return nil
		},
	}
}

// carried returns a sentence about what wrong lanes could cut on the plan's devices: the user's
// login or the default route. If there is neither, or the plan has no steps, it returns "".
func carried(p *plan.Plan) string {
	if len(p.Steps) == 0 {
		return ""
	}
	return lifeline.Sentence(p.Devices)
}

// keepLifeline returns an error if the plan could cut the user's login or the default route.
func keepLifeline(p *plan.Plan) error {
	s := carried(p)
	if s == "" {
		return nil
	}
	return fmt.Errorf("%s: wrong lanes could cut it, so nothing has been changed; with --confirm-within 60s "+
		"niclane undoes the lanes unless niclane confirm comes first, with --confirm-within 0 they stay", s)
}

// warnLifeline only warns of the danger for which keepLifeline returns an error. Callers use it if
// the user gave --confirm-within.
func (a *app) warnLifeline(p *plan.Plan) error {
	if s := carried(p); s != "" {
		fmt.Fprintf(a.Stderr, "niclane: warning: %s\n", s)
	}
	return nil
}

// noteUnconfirmed warns if a change is not confirmed and the process that would undo it was killed.
func (a *app) noteUnconfirmed() {
	if u := a.Engine().Unconfirmed(); u != "" {
		a.Warn(u)
	}
}

// confirmOutput is the JSON output of confirm.
type confirmOutput struct {
	Confirmed bool `json:"confirmed"`
}

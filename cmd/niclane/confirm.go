// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/internal/lifeline"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

func (a *app) confirmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "confirm",
		Short: "Keep what apply --confirm-within has made",
		Args:  exactly(0, "none"),
		RunE: func(*cobra.Command, []string) error {
			if err := needRoot("confirm"); err != nil {
				return err
			}
			if err := apply.Confirm(a.runDir); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]bool{"confirmed": true})
			}
			fmt.Fprintln(a.stdout, "confirmed: the lanes stay")
			return nil
		},
	}
}

// guardian is apply's guard, or none where the user asked for none.
type guardian struct{ *apply.Guard }

// guard starts the guardian before the first step is made.
func (a *app) guard(j *journal.Journal, within time.Duration) (guardian, error) {
	if within == 0 {
		return guardian{}, nil
	}
	g, err := apply.StartGuard(j, a.runDir, a.stateDir, within)
	if err != nil {
		return guardian{}, err
	}
	for _, w := range g.Warnings() {
		fmt.Fprintln(a.stderr, "niclane: warning:", w)
	}
	return guardian{g}, nil
}

// failed adds to err if the guardian could not be told that apply has undone
// itself.
func (g guardian) failed(err error) error {
	if g.Guard == nil {
		return err
	}
	return errors.Join(err, g.Cancel())
}

// ended starts the time to confirm; nil without a guardian.
func (g guardian) ended() (*time.Time, error) {
	if g.Guard == nil {
		return nil, nil
	}
	t, err := g.Ended()
	return &t, err
}

// carried says what the devices that a plan changes carry, "" if nothing.
func carried(p *plan.Plan) string {
	if len(p.Steps) == 0 {
		return ""
	}
	return lifeline.Sentence(p.Devices)
}

// keepLifeline refuses a plan that could cut off the person who makes it.
func keepLifeline(p *plan.Plan) error {
	s := carried(p)
	if s == "" {
		return nil
	}
	return fmt.Errorf("%s: lanes that go wrong would cut it, and nothing has been changed; with --confirm-within 60s they are undone unless niclane confirm comes first, "+
		"with --confirm-within 0 they stay", s)
}

// warnLifeline tells a person who has decided.
func (a *app) warnLifeline(p *plan.Plan) error {
	if s := carried(p); s != "" {
		fmt.Fprintf(a.stderr, "niclane: warning: %s\n", s)
	}
	return nil
}

// noteUnconfirmed tells of a change that was to be confirmed and whose guardian was
// killed.
func (a *app) noteUnconfirmed() {
	if u := apply.Unconfirmed(a.runDir); u != "" {
		fmt.Fprintln(a.stderr, "niclane: warning:", u)
	}
}

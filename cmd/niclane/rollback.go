// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/engine"
)

func (a *app) rollbackCommand() *cobra.Command {
	var force, last bool
	cmd := &cobra.Command{
		Use:   "rollback [FILE|DEV]",
		Short: "Put back what was there before niclane",
		Long: `Rollback restores every object that niclane has written to its value before niclane:
the objects of one lanes file, of the file of one device, or of all files. It works
after a failure, a kill or a crash of apply. If another program has changed an object
since then, rollback leaves and names the object, and exits 1; --force restores it too.
After a reboot the kernel state is gone already, and rollback only clears the journal.

With --last, rollback undoes only the last change of the lanes file: an apply, or a
repair by watch. The lanes are then as the apply before it left them. Without an
argument, it takes the lanes file that was applied last.`,
		Args: cli.AtMost(1, "at most one lanes file or device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NeedRoot("rollback"); err != nil {
				return err
			}
			return a.rollback(cmd.Context(), engine.RollbackOptions{Of: first(args), Force: force, Last: last})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "restore also the objects that another program has changed since")
	cmd.Flags().BoolVar(&last, "last", false, "undo only the last change")
	return cmd
}

func (a *app) rollback(ctx context.Context, o engine.RollbackOptions) error {
	results, err := a.Engine().Rollback(ctx, o)
	switch {
	case results == nil:
		return err
	case a.JSON:
		if perr := a.PrintJSON(results); perr != nil {
			return perr
		}
	case len(results) == 0 && err == nil:
		fmt.Fprintln(a.Stdout, "nothing to undo: niclane has changed nothing here")
	default:
		a.printRollback(results, o.Last)
	}
	return err
}

func (a *app) printRollback(results []engine.RolledBack, last bool) {
	before := "before"
	if last {
		before += " the last change"
	}
	for _, r := range results {
		for _, w := range r.Report.Warnings {
			a.Warn(w)
		}
		switch {
		case r.Report.Rebooted:
			fmt.Fprintf(a.Stdout, "%s: the machine was rebooted since; nothing of it is left, journal removed\n",
				r.Config)
		case r.Error == "":
			fmt.Fprintf(a.Stdout, "%s: %s back as %s%s\n", r.Config, cli.Plural(len(r.Report.Undone), "object"), before,
				goneWith(r.Report))
		case r.Report.Objects > 0:
			fmt.Fprintf(a.Stdout, "%s: %d of %s back as %s%s, %d left%s\n", r.Config, len(r.Report.Undone),
				cli.Plural(r.Report.Objects, "object"), before,
				goneWith(r.Report), len(r.Report.Left), forceText(r.Report.Left))
		}
		for _, w := range r.Report.Removed {
			fmt.Fprintf(a.Stdout, "removed, although not niclane's: %s\n", w)
		}
	}
}

// goneWith returns a text with the number of objects that rollback did not find, because what they
// were on no longer exists.
func goneWith(r *apply.Report) string {
	if len(r.Gone) == 0 {
		return ""
	}
	return fmt.Sprintf(", %d gone with what they were on", len(r.Gone))
}

// forceText returns a hint at rollback --force, if that would restore more. Otherwise it returns
// "".
func forceText(left []apply.Left) string {
	if !slices.ContainsFunc(left, func(l apply.Left) bool { return l.Foreign }) {
		return ""
	}
	return ": rollback --force restores what other programs have changed, and removes what they have put on " +
		"niclane's objects"
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/journal"
)

func (a *app) rollbackCommand() *cobra.Command {
	var force, last bool
	cmd := &cobra.Command{
		Use:   "rollback [FILE|DEV]",
		Short: "Put back what was there before niclane",
		Long: `Rollback puts back, from the journal, every object that niclane has written: of
one lanes file, of the file that governs one device, or of all. It works after a
failure, a kill or a crash of apply. What somebody else has changed since is
left, named, and makes it exit 1; --force puts that back too. After a reboot the
kernel state is gone already, and rollback only clears the journal.

With --last it undoes only the last change: what the last apply of the lanes file
changed, which may have been a watch's repair. The lanes are then as the apply
before it left them. Without an argument it is the last change of all files.`,
		Args: atMost(1, "at most one lanes file or device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needRoot("rollback"); err != nil {
				return err
			}
			if last {
				return a.rollbackChosen(cmd.Context(), undoing{force: force, last: true}, func(js []*journal.Journal) ([]*journal.Journal, error) { return latest(js, args) })
			}
			return a.rollback(cmd.Context(), args, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "put back also what somebody else has changed since")
	cmd.Flags().BoolVar(&last, "last", false, "undo only the last change")
	return cmd
}

// rolledBack is what rollback prints as JSON, one per journal.
type rolledBack struct {
	Config  string        `json:"config"`
	Devices []string      `json:"devices"`
	Report  *apply.Report `json:"report"`
	Error   string        `json:"error,omitempty"`
}

func (a *app) rollback(ctx context.Context, args []string, force bool) error {
	return a.rollbackChosen(ctx, undoing{force: force}, func(js []*journal.Journal) ([]*journal.Journal, error) { return chosen(js, args) })
}

// undoing is what is to be undone of a journal.
type undoing struct {
	force bool
	last  bool // what the last apply changed, not all
}

func (u undoing) do(ctx context.Context, k apply.Kernel, j *journal.Journal, here journal.Host) (*apply.Report, error) {
	opts := apply.Options{Force: u.force}
	if u.last && j.Head().SameBoot(here) {
		return apply.Undo(k, j, opts)
	}
	return apply.Rollback(ctx, k, j, here, opts)
}

// rollbackChosen undoes what the chosen journals have.
func (a *app) rollbackChosen(ctx context.Context, u undoing, choose func([]*journal.Journal) ([]*journal.Journal, error)) error {
	lock, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	here, err := journal.Here()
	if err != nil {
		return err
	}
	all, broken, err := a.undoable(here, u.force)
	if err != nil {
		return err
	}
	js, err := choose(slices.Clone(all))
	if err != nil {
		return errors.Join(broken, err)
	}
	k, err := apply.NewKernel(a.runDir)
	if err != nil {
		return err
	}
	defer k.Close()
	results := []rolledBack{}
	var errs []error
	if len(js) == len(all) {
		errs = append(errs, broken)
	}
	for _, j := range js {
		if d := j.Damage(); d != "" {
			fmt.Fprintf(a.stderr, "niclane: warning: journal %s: %s\n", j.Path(), d)
		}
		report, err := u.do(ctx, k, j, here)
		res := rolledBack{Config: j.Head().Config, Devices: j.Head().Devices, Report: report}
		if err != nil {
			errs = append(errs, err)
			res.Error = err.Error()
		} else if len(j.Records()) == 0 || report.Rebooted {
			errs = append(errs, a.removeBaselines(j.Head().Devices))
			if kept := j.Kept(); kept != "" {
				errs = append(errs, fmt.Errorf("what the lines tell that cannot be read is as it is: look into %s, and remove it", kept))
			}
		}
		results = append(results, res)
	}
	if a.json {
		if err := a.printJSON(results); err != nil {
			return err
		}
	} else {
		if len(results) == 0 && broken == nil {
			fmt.Fprintln(a.stdout, "nothing to undo: niclane has changed nothing here")
		}
		a.printRollback(results, u.last)
	}
	return errors.Join(errs...)
}

func (a *app) printRollback(results []rolledBack, last bool) {
	before := "before"
	if last {
		before += " the last change"
	}
	for _, r := range results {
		for _, w := range r.Report.Warnings {
			fmt.Fprintln(a.stderr, "niclane: warning:", w)
		}
		switch {
		case r.Report.Rebooted:
			fmt.Fprintf(a.stdout, "%s: the machine was rebooted since; nothing of it is left, journal removed\n", r.Config)
		case r.Error == "":
			fmt.Fprintf(a.stdout, "%s: %s back as %s%s\n", r.Config, count(len(r.Report.Undone), "object"), before, goneWith(r.Report))
		case r.Report.Objects > 0:
			fmt.Fprintf(a.stdout, "%s: %d of %s back as %s%s, %d left%s\n", r.Config, len(r.Report.Undone), count(r.Report.Objects, "object"), before,
				goneWith(r.Report), len(r.Report.Left), forceText(r.Report.Left))
		}
		for _, w := range r.Report.Removed {
			fmt.Fprintf(a.stdout, "removed, and not niclane's: %s\n", w)
		}
	}
}

// goneWith counts objects that are gone with what they were on.
func goneWith(r *apply.Report) string {
	if len(r.Gone) == 0 {
		return ""
	}
	return fmt.Sprintf(", %d gone with what they were on", len(r.Gone))
}

// forceText says when rollback --force goes further.
func forceText(left []apply.Left) string {
	if !slices.ContainsFunc(left, func(l apply.Left) bool { return l.Foreign }) {
		return ""
	}
	return ": rollback --force puts back what others have changed, and removes what they have put on niclane's"
}

// undoable returns the journals that rollback can undo, and says which cannot be read.
// With force it takes of these what can. What records nothing is removed.
func (a *app) undoable(here journal.Host, force bool) (js []*journal.Journal, broken, err error) {
	s, err := a.openStore()
	if s == nil || err != nil {
		return nil, nil, err
	}
	a.tidy(s)
	js, broken = s.List()
	if force && broken != nil {
		var more []*journal.Journal
		more, broken = s.Salvage()
		js = append(js, more...)
	}
	return slices.DeleteFunc(js, func(j *journal.Journal) bool { return elsewhere(j, here) }), broken, nil
}

// tidy removes files that record nothing. That it cannot, as where the directory is
// read-only by now, keeps nobody from undoing.
func (a *app) tidy(s *journal.Store) {
	notes, err := s.Tidy()
	if err != nil {
		notes = append(notes, err.Error())
	}
	for _, n := range notes {
		fmt.Fprintln(a.stderr, "niclane: warning:", n)
	}
}

// elsewhere reports whether a journal is of another network namespace of this boot.
func elsewhere(j *journal.Journal, here journal.Host) bool {
	return j.Head().SameBoot(here) && !j.Head().SameNetns(here)
}

// allJournals returns the journals of this network namespace, and those of an
// earlier boot, which only have to be cleared.
func (a *app) allJournals(here journal.Host) ([]*journal.Journal, error) {
	s, err := a.openStore()
	if s == nil || err != nil {
		return nil, err
	}
	js, err := s.List()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(js, func(j *journal.Journal) bool { return elsewhere(j, here) }), nil
}

// chosen keeps the journals that the argument names.
func chosen(js []*journal.Journal, args []string) ([]*journal.Journal, error) {
	if len(args) == 0 {
		return js, nil
	}
	name, err := configName(args[0])
	if err != nil {
		name = args[0] // a file that is gone by now, or a device
	}
	var have []string
	for _, j := range js {
		h := j.Head()
		if h.Config == name || h.Config == args[0] || slices.Contains(h.Devices, args[0]) {
			return []*journal.Journal{j}, nil
		}
		have = append(have, h.Config)
	}
	return nil, fmt.Errorf("nothing was applied from %s, nor to a device of that name (applied here: %v)", args[0], have)
}

// latest keeps the journal of the last change: of the one that the argument names, or
// of all.
func latest(js []*journal.Journal, args []string) ([]*journal.Journal, error) {
	js, err := chosen(js, args)
	if err != nil || len(js) == 0 {
		return nil, err
	}
	slices.SortStableFunc(js, func(a, b *journal.Journal) int { return b.Head().When.Compare(a.Head().When) })
	j, h := js[0], js[0].Head()
	switch {
	case len(js) > 1 && js[1].Head().When.Equal(h.When):
		return nil, fmt.Errorf("rollback --last: %s and %s were changed in the same second: name one of them", h.Config, js[1].Head().Config)
	case j.RolledBack():
		return nil, fmt.Errorf("rollback --last: a rollback of all of %s has begun: niclane rollback %s goes on with that", h.Config, h.Config)
	case j.Damage() != "" && len(h.Before) > 0:
		return nil, fmt.Errorf("rollback --last: the journal of %s is damaged (%s): niclane rollback %s takes all of it away", h.Config, j.Damage(), h.Config)
	case !j.Revertible():
		return nil, fmt.Errorf("rollback --last: what there was before the last change of %s is not on record: the change before it was undone, or is of another kind; niclane rollback %s takes all of it away", h.Config, h.Config)
	}
	return js[:1], nil
}

// interruptible is a context that ends on Ctrl-C and on being told to end, so
// that apply undoes what it did.
func interruptible(ctx context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	return ctx, stop
}

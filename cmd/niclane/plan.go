// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/migrate/adqsetup"
)

func (a *app) planCommand() *cobra.Command {
	var stdin bool
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show every change that apply would make, and make none",
		Long: `Plan compares the lanes in FILE with the machine and prints the steps from one to
the other, in order, each with its reason, the key in FILE that asked for it,
and the command line that would do the same. It exits 3 when changes are
pending, and prints nothing and exits 0 when there are none.

With --stdin it plans as if FILE had what is on standard input: what a new
version of FILE would change, before it is put there.`,
		Args: exactly(1, "one lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			read := readRequest
			if stdin {
				read = a.readProposal
			}
			r, err := read(args[0])
			if err != nil {
				return err
			}
			if err := needRoot("plan"); err != nil {
				return err
			}
			a.noteUnconfirmed()
			store, err := a.openStore()
			if err != nil {
				return err
			}
			p, _, err := a.plan(cmd.Context(), r, store)
			if err != nil {
				return err
			}
			if s := carried(p); s != "" {
				p.Notes = append(p.Notes, s+": apply wants --confirm-within")
			}
			if a.json {
				if err := a.printJSON(p); err != nil {
					return err
				}
			} else if len(p.Steps) > 0 {
				a.printPlan(p)
			}
			if len(p.Steps) > 0 {
				return exitCode{code: exitPending}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&stdin, "stdin", false, "plan as if FILE had what is on standard input")
	return cmd
}

// A request is a lanes file that was read.
type request struct {
	*config.File
	text []byte
	// config is the name under which it is journalled.
	config string
	// origin is what the file was converted from, if it was.
	origin *adqsetup.Result
	// planned, if there, is told of a plan before its first step is made.
	planned func(*plan.Plan) error
}

// locate says where a person has written what the file has at a path.
func (r *request) locate(path string) (name string, line int, at string) {
	name, line = r.Locate(path)
	if r.origin != nil {
		return r.origin.Locate(path, line)
	}
	return name, line, path
}

func readRequest(path string) (*request, error) {
	file, text, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	name, err := configName(path)
	if err != nil {
		return nil, err
	}
	return &request{File: file, text: text, config: name}, nil
}

// readProposal reads from standard input what a lanes file could become. The
// file need not be there yet.
func (a *app) readProposal(path string) (*request, error) {
	file, text, err := parseConfig(path, a.stdin)
	if err != nil {
		return nil, err
	}
	name, err := configName(path)
	if errors.Is(err, fs.ErrNotExist) {
		if name, err = configName(filepath.Dir(path)); err == nil {
			name = filepath.Join(name, filepath.Base(path))
		}
	}
	if err != nil {
		return nil, err
	}
	return &request{File: file, text: text, config: name}, nil
}

// plan plans the request against the machine, whose state it returns too, and
// what the journals own.
func (a *app) plan(ctx context.Context, r *request, store *journal.Store) (*plan.Plan, *device.State, error) {
	// Reading the journals of a thousand members takes as long as looking at
	// them does.
	journals := make(chan ownedOrNot, 1)
	go func() {
		owned, err := ownedBy(store, r.config)
		journals <- ownedOrNot{owned, err}
	}()
	st, err := a.observeFor(ctx, r.Intent)
	read := <-journals
	if err == nil {
		err = read.err
	}
	if err != nil {
		return nil, nil, err
	}
	if store != nil {
		// Before planning: what another file did to the device would
		// look like somebody else's settings.
		if err := store.Conflict(r.config, groupOf(r.Intent), linksOf(r.Intent, st)); err != nil {
			return nil, nil, err
		}
	}
	if st, err = a.observeLeft(ctx, r.Intent, st, read.ofConfig); err != nil {
		return nil, nil, err
	}
	p, err := plan.Make(r.Intent, st, read.Owned)
	if err != nil {
		return nil, nil, located(err, r.locate)
	}
	return p, st, nil
}

// ownedOrNot is what ownedBy returns.
type ownedOrNot struct {
	ofConfig
	err error
}

func (a *app) printPlan(p *plan.Plan) {
	plan.WriteText(a.stdout, p.Steps)
	for _, n := range p.Notes {
		fmt.Fprintf(a.stdout, "note: %s\n", n)
	}
	fmt.Fprintf(a.stdout, "%s; nothing has been changed\n", count(len(p.Steps), "step"))
}

// count gives "1 step", "2 steps".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

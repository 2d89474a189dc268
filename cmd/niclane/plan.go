// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/migrate/adqsetup"
)

func (a *app) planCommand() *cobra.Command {
	var stdin, steps bool
	cmd := &cobra.Command{
		Use:   "plan FILE|-",
		Short: "Show every change that apply would make, and make none",
		Long: `Plan compares the lanes in FILE with the machine. It prints what each lane gets, and by
which mechanism. Then it prints the steps, each with its reason, the key in FILE that
asked for it, and an equivalent command line. If there are more than two steps of one
kind, it prints only the first; --steps prints all, in the order of apply. Plan exits 3
if changes are pending. If none are pending, it prints nothing and exits 0.

Plan treats lanes on standard input (-) as a new version of the lanes that are applied
on the device. With --stdin, it treats them as a new version of FILE.`,
		Args: cli.Exactly(1, "one lanes file, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			read := readRequest
			switch {
			case stdin:
				read = a.readProposal
			case isStream(args[0]):
				read = a.readVersion
			}
			r, err := read(args[0])
			if err != nil {
				return err
			}
			if err := cli.NeedRoot("plan"); err != nil {
				return err
			}
			a.noteUnconfirmed()
			p, err := a.Engine().Plan(cmd.Context(), r.file())
			if err != nil {
				return err
			}
			if s := carried(p.Plan); s != "" {
				p.Notes = append(p.Notes, s+": apply needs --confirm-within")
			}
			if a.JSON {
				if err := a.PrintJSON(p.Plan); err != nil {
					return err
				}
			} else if len(p.Steps) > 0 {
				if err := a.printPlan(p.Plan, steps); err != nil {
					return err
				}
			}
			if len(p.Steps) > 0 {
				return cli.ExitCode{Code: cli.ExitPending}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&steps, "steps", false, "print every step, in order")
	cmd.Flags().BoolVar(&stdin, "stdin", false, "plan as if FILE had the content of standard input")
	return cmd
}

// A request is a lanes file that was read.
type request struct {
	*config.File
	text []byte
	// config is the name of the lanes file in the journal.
	config string
	// origin is the conversion that made the lanes file from an adqsetup file; nil if none did.
	origin *adqsetup.Result
	// planned, if set, is called with the plan before its first step is made.
	planned func(*plan.Plan) error
}

// file returns the request in the form that package engine takes.
func (r *request) file() *engine.File {
	return &engine.File{Name: r.config, Text: r.text, Intent: r.Intent, Locate: r.locate}
}

// locate returns the place where the user wrote a setting. path is the setting's path in the lanes
// file, at its path in the file that the user wrote.
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
	name, err := engine.Name(path)
	if err != nil {
		return nil, err
	}
	return &request{File: file, text: text, config: name}, nil
}

// readProposal reads from standard input what the lanes file at path could contain. The file need
// not exist.
func (a *app) readProposal(path string) (*request, error) {
	file, text, err := parseConfig(path, a.Stdin)
	if err != nil {
		return nil, err
	}
	name, err := engine.Name(path)
	if errors.Is(err, fs.ErrNotExist) {
		if name, err = engine.Name(filepath.Dir(path)); err == nil {
			name = filepath.Join(name, filepath.Base(path))
		}
	}
	if err != nil {
		return nil, err
	}
	return &request{File: file, text: text, config: name}, nil
}

// printPlan prints a plan. If steps is true, it prints every step. Otherwise, it prints the first
// of several similar steps and counts the others.
func (a *app) printPlan(p *plan.Plan, steps bool) error {
	if len(p.Lanes) > 0 {
		if err := plan.WriteSummary(a.Stdout, p); err != nil {
			return err
		}
		fmt.Fprintln(a.Stdout)
	}
	if steps {
		plan.WriteText(a.Stdout, p.Steps)
	} else {
		plan.WriteFolded(a.Stdout, p.Devices, p.Steps)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(a.Stdout, "note: %s\n", n)
	}
	_, err := fmt.Fprintf(a.Stdout, "%s; nothing has been changed\n", cli.Plural(len(p.Steps), "step"))
	return err
}

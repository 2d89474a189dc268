// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/result"
	experiments "github.com/niclane/niclane/bench/run"
)

func (a *app) benchRunCommand() *cobra.Command {
	var out string
	var dry bool
	format := result.Text
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Measure what an experiment file says",
		Long: `Run carries out an experiment file, experiment.yaml(5): it raises the lab, starts
the server and waits for its answer, measures every variant at every load point
in interleaved repeats, and proves the workload from the server's own counters.
It prints a table and writes result.json to --out. An interrupt or a failure
keeps what was measured, marked partial; what it made in the machine it removes
again in any case.`,
		Args: exactly(1, "the experiment's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(result.Formats, format) {
				return usagef("bench run: --format %s: want %s", format, strings.Join(result.Formats, ", "))
			}
			f, text, err := experiments.Read(args[0])
			if err != nil {
				return err
			}
			if err := experiments.Describe(a.stderr, f); err != nil || dry {
				return err
			}
			if err := needRoot("bench run"); err != nil {
				return err
			}
			o := experiments.Options{Version: version, Progress: a.stderr}
			if out != "" {
				if o.Save, err = saveTo(out); err != nil {
					return err
				}
			}
			niclane, err := os.Executable()
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			r, err := experiments.Run(ctx, f, text, experiments.InLab(f, niclane), o)
			if len(r.Windows) == 0 {
				return err
			}
			if a.json {
				return errors.Join(err, result.Write(a.stdout, r))
			}
			return errors.Join(err, result.WriteFormat(a.stdout, r, format))
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory for result.json")
	cmd.Flags().StringVar(&format, "format", format, "of standard output: "+strings.Join(result.Formats, ", "))
	cmd.Flags().BoolVar(&dry, "dry-run", false, "check the file, say what would be done and how long it takes, and end")
	return cmd
}

// saveTo makes a directory and keeps result.json there. That it can be written
// is found out before hours are measured.
func saveTo(dir string) (func(*result.Result) error, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	probe, err := os.CreateTemp(dir, ".niclane-")
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "result.json")
	return func(r *result.Result) error { return result.WriteFile(path, r) }, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/bench/firstlane"
	"github.com/niclane/niclane/bench/report"
)

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench first-lane|run",
		Short: "Measure what a lane gains",
		Args: func(*cobra.Command, []string) error {
			return usagef("bench: want first-lane or run")
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(a.firstLaneCommand(), a.benchRunCommand())
	return cmd
}

func (a *app) firstLaneCommand() *cobra.Command {
	o := firstlane.Defaults()
	var out string
	cmd := &cobra.Command{
		Use:   "first-lane",
		Short: "Measure memcached in the lab: idle, with noise, with noise and a lane",
		Long: `First-lane raises a lab of its own, starts memcached (or niclane's own server
where there is none), and measures its latency from the intended send time in
interleaved repeats of three variants: idle; bulk noise in both directions; the
same noise and a lane. It prints a table and writes result.json and report.html
to --out. What it made in the machine it removes again.`,
		Args: exactly(0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return usagef("bench first-lane: %w", err)
			}
			if err := needRoot("bench first-lane"); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			var err error
			if o.Niclane, err = os.Executable(); err != nil {
				return err
			}
			o.Version, o.Progress = version, a.stderr
			result, err := firstlane.Run(ctx, o)
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeReport(out, result); err != nil {
					return err
				}
			}
			if a.json {
				return report.WriteJSON(a.stdout, result)
			}
			if err := report.WriteTable(a.stdout, result); err != nil {
				return err
			}
			if out != "" {
				fmt.Fprintf(a.stdout, "\nreport: %s\n", filepath.Join(out, "report.html"))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "directory for result.json and report.html")
	f.IntVar(&o.Pairs, "pairs", o.Pairs, "interleaved repeats of each variant")
	f.Float64Var(&o.Rate, "rate", o.Rate, "gets per second")
	f.IntVar(&o.Connections, "connections", o.Connections, "connections of the generator")
	f.DurationVar(&o.Window, "window", o.Window, "counted time of one repeat")
	f.DurationVar(&o.Warmup, "warmup", 500*time.Millisecond, "time before it")
	f.Float64Var(&o.NoiseShare, "noise", o.NoiseShare, "noise in each direction as a share of the link")
	f.IntVar(&o.FlowsIn, "flows-in", o.FlowsIn, "flows of noise to the server's host")
	f.IntVar(&o.FlowsOut, "flows-out", o.FlowsOut, "flows of noise from it")
	f.StringVar(&o.Card, "card", "", "what the server's port is: emulated or none (default: the lab's)")
	f.StringToStringVar(&o.Force, "force", nil, "realisation of a part of the lane, as PART=REALISATION")
	f.Uint64Var(&o.LinkRate, "link-rate", 0, "rate of the link in bit/s (default: the lab's)")
	f.IntVar(&o.Buffer, "buffer", 0, "buffer of the switch's port in bytes (default: the lab's)")
	f.BoolVar(&o.Sweep, "sweep", o.Sweep, "also sweep noise share and buffer")
	return cmd
}

// writeReport writes both files, each whole or not at all.
func writeReport(dir string, r *report.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		writeFile(filepath.Join(dir, "result.json"), func(w io.Writer) error { return report.WriteJSON(w, r) }),
		writeFile(filepath.Join(dir, "report.html"), func(w io.Writer) error { return report.WriteHTML(w, r) }))
}

func writeFile(path string, write func(io.Writer) error) error {
	tmp := path + ".partial"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}

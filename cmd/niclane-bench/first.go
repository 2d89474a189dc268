// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	benchrun "github.com/niclane/niclane/bench/run"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/experiments"
	y "github.com/niclane/niclane/internal/strictyaml"
)

func (a *app) firstLaneCommand() *cobra.Command {
	b := &bench{app: a}
	var file, exact bool
	cmd := &cobra.Command{
		Use:   "first-lane",
		Short: "Measure memcached in the lab: idle, with noise, with noise and a lane",
		Long: `First-lane carries out experiments/first-lane.yaml, which is built into niclane, as
"niclane bench run" does. It starts a lab of its own and memcached (or niclane's
own server if there is no memcached), and measures the server's latency from the
intended send time. It measures four variants in interleaved repeats: idle; bulk
noise in both directions; the same noise and a lane with queues alone; the same
noise and a lane with a share of the link. Options replace keys of the file;
--print-file prints the file that results. With --exact, the same follows in
virtual time, and a table says what this machine's noise hid.`,
		Args: cli.Exactly(0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			f, text, err := firstLane(cmd.Flags())
			if err != nil {
				return err
			}
			if file {
				_, err := io.WriteString(a.Stdout, text)
				return err
			}
			if exact && (b.out == "" || b.virtual || b.JSON || b.format != result.Text) {
				return cli.Usagef("%s: --exact needs --out, the format text, and a run in real time", b.name)
			}
			if err := b.measure(cmd.Context(), f, text); err != nil || b.dry || !exact {
				return err
			}
			return b.exactPart(cmd.Context(), cmd.Flags())
		},
	}
	f := cmd.Flags()
	f.Int("pairs", 10, "interleaved repeats of each variant")
	f.Int("rate", 10_000, "gets per second")
	f.Int("connections", 32, "connections of the generator")
	f.Duration("window", 2500*time.Millisecond, "counted time of one repeat")
	f.Duration("warmup", 500*time.Millisecond, "time before the counted time")
	f.Float64("noise", 0.75, "noise in each direction as a share of the link")
	f.Int("flows-in", 1, "flows of noise to the server's host")
	f.Int("flows-out", 16, "flows of noise from the server's host")
	f.String("lab", "niclane-demo", "`name` of the lab; two runs at once need two names")
	f.String("card", "", "what the server's port is: `emulated|none` (default: the lab's)")
	f.StringToString("force", nil, "mechanism of a part of the lane, as `PART=MECHANISM`")
	f.Uint64("link-rate", 0, "rate of the link in bit/s (default: the lab's)")
	f.Int("buffer", 0, "buffer of the switch's port in bytes (default: the lab's)")
	f.Bool("sweep", true, "also sweep noise share and buffer")
	f.BoolVar(&exact, "exact", false, "also measure in virtual time, if tools/virtual-kernel has built its kernel")
	f.BoolVar(&file, "print-file", false, "print the experiment's file, for bench run, and end")
	b.flags(cmd)
	return cmd
}

// exactDir is the directory in --out for the result of virtual time.
const exactDir = "exact"

// exactPart measures in virtual time what was measured, 10 s of each variant, and prints both. Without
// a kernel of virtual time it only says so.
func (b *bench) exactPart(ctx context.Context, flags *pflag.FlagSet) error {
	if err := b.guest.Check(); err != nil {
		fmt.Fprintf(b.Stderr, "no exact part: %v\n", err)
		return nil
	}
	out := filepath.Join(b.out, exactDir)
	args := []string{"first-lane", "--virtual", "--sweep=false", "--pairs=4", "--out=" + out}
	flags.Visit(func(f *pflag.Flag) {
		if firstLanePaths[f.Name] != nil && f.Name != "sweep" && f.Name != "pairs" {
			args = append(args, "--"+f.Name+"="+strings.Trim(f.Value.String(), "[]")) // a map has brackets
		}
	})
	quiet := b.App
	quiet.Stdout = io.Discard
	if err := b.guest.Run(ctx, &quiet, args, out); err != nil {
		return fmt.Errorf("the exact part: %w", err)
	}
	measured, err := result.ReadFile(filepath.Join(b.out, resultFile))
	if err != nil {
		return err
	}
	exact, err := result.ReadFile(filepath.Join(out, resultFile))
	if err != nil {
		return err
	}
	return result.WriteExact(b.Stdout, result.Summarize(measured), result.Summarize(exact))
}

// firstLane returns the experiment of first-lane.yaml, changed by the options that the user gave.
// It first tries each option alone, so that an error can name the option.
func firstLane(flags *pflag.FlagSet) (*experiment.File, string, error) {
	const name = "first-lane.yaml"
	var all []experiment.Change
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		changes := firstLaneChanges(flags, f.Name)
		all = append(all, changes...)
		text, err := experiment.Set(experiments.FirstLane, changes...)
		if err == nil {
			_, err = experiment.Parse(name, []byte(text))
		}
		if bad, ok := errors.AsType[experiment.Errors](err); ok {
			err = errors.New(bad[0].Message)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", f.Name, err))
		}
	})
	if len(errs) > 0 {
		return nil, "", cli.Usagef("bench first-lane: %w", errors.Join(errs...))
	}
	text, err := experiment.Set(experiments.FirstLane, all...)
	if err != nil {
		return nil, "", err
	}
	f, err := experiment.Parse(name, []byte(text))
	if err != nil {
		return nil, "", cli.Usagef("bench first-lane: %w", err)
	}
	return f, text, benchrun.Check(f)
}

// firstLanePaths are the keys of first-lane.yaml that each option sets.
var firstLanePaths = map[string][]string{
	"pairs": {"repeats.min"}, "rate": {"load.rates"}, "connections": {"load.connections"}, "window": {"load.window"},
	"warmup": {"load.warmup"},
	"noise":  {"noise[0].rate", "noise[1].rate"}, "flows-in": {"noise[0].flows"}, "flows-out": {"noise[1].flows"},
	"lab": {"lab.name"}, "card": {"lab.card"}, "link-rate": {"lab.link-rate"}, "buffer": {"lab.switch-buffer"},
	"force": {"variants[2].force", "variants[3].force"}, "sweep": {"sweep"},
}

func firstLaneChanges(flags *pflag.FlagSet, name string) []experiment.Change {
	// These Get calls cannot fail: each asks for the type with which the flag was defined.
	value := flags.Lookup(name).Value.String()
	switch name {
	case "window", "warmup":
		d, _ := flags.GetDuration(name)
		value = y.DurationText(int64(d))
	case "noise":
		share, _ := flags.GetFloat64(name)
		value = fmt.Sprintf("%.4g%%", 100*share)
	case "link-rate":
		value += "bit"
	case "card", "lab":
		value = y.Quote(value)
	case "force":
		m, _ := flags.GetStringToString(name)
		var parts []string
		for _, part := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, fmt.Sprintf("%q: %q", part, m[part]))
		}
		value = "{" + strings.Join(parts, ", ") + "}"
	case "sweep":
		if on, _ := flags.GetBool(name); on {
			return nil // the file has a sweep already
		}
		value = ""
	}
	var out []experiment.Change
	for _, path := range firstLanePaths[name] {
		out = append(out, experiment.Change{Path: path, Value: value})
	}
	return out
}

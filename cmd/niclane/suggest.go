// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/live/services"
	"github.com/niclane/niclane/live/suggest"
)

// suggestOutput is what suggest prints with --json.
type suggestOutput struct {
	Inventory  *services.Inventory `json:"inventory"`
	Suggestion *suggest.Suggestion `json:"suggestion"`
}

// defaultWatch is for how long suggest watches traffic, longestWatch for how long it can.
const (
	defaultWatch = 5 * time.Second
	longestWatch = 10 * time.Minute
)

func (a *app) suggestCommand() *cobra.Command {
	var q services.Query
	took := defaultWatch
	cmd := &cobra.Command{
		Use:   "suggest [--unit UNIT | --pid PID | --port PORT | --container ID] [DEV]",
		Short: "Find the services that are worth a lane, and print a lanes file for them",
		Long: `Suggest looks at what listens on this host, watches its traffic for a time, and prints a
lanes file for the services that answer many small requests. A comment at each key says
why. Comments at the end say which services it leaves out, what the device cannot do,
and which other programs write the same settings. It changes nothing: give the file to
niclane plan.

Suggest takes the device with the most requests, or DEV. With an option it makes lanes
for one service only, and says if that service looks not worth one. For a service that
is not there yet, give --port and --protocol.`,
		Args: cli.AtMost(1, "at most one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if took < 0 || took > longestWatch {
				return cli.Usagef("suggest: --for %s: want 0 to 10m", took)
			}
			if err := checkQuery("suggest", q); err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			s, err := a.suggest(ctx, q, first(args), took)
			if err != nil {
				return err
			}
			if a.JSON {
				err = a.PrintJSON(s)
			} else {
				_, err = fmt.Fprint(a.Stdout, s.Suggestion.LanesFile)
			}
			if err == nil && s.Suggestion.Refused != "" {
				err = fmt.Errorf("plan refuses the suggested lanes: %s", s.Suggestion.Refused)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Unit, "unit", "", "only this systemd `unit` (memcached.service)")
	f.IntVar(&q.PID, "pid", 0, "only the service of this process")
	f.Uint16Var(&q.Port, "port", 0, "only the service at this port")
	f.StringVar(&q.Protocol, "protocol", "", "tcp or udp, for --port; also for a service that is not there yet")
	f.StringVar(&q.Container, "container", "", "only the container with this `ID`, in the host's network")
	cli.TimeVar(f, &took, "for", "watch traffic for this time (0 to 10m)")
	return cmd
}

// suggest takes the inventory, watches traffic, and chooses.
func (a *app) suggest(ctx context.Context, q services.Query, dev string, took time.Duration) (*suggestOutput, error) {
	inv, err := services.Find(ctx)
	if err != nil {
		return nil, err
	}
	in := suggest.Input{Inventory: inv, Asked: dev}
	if q != (services.Query{}) {
		in.Selected = q.Accepts
		switch err := inv.Check(q); {
		case errors.Is(err, services.ErrNoListener) && q.Protocol != "":
			in.Future = &suggest.Future{Protocol: q.Protocol, Port: q.Port}
		case errors.Is(err, services.ErrNoListener):
			return nil, fmt.Errorf("%w; for a service that is not there yet, add --protocol tcp or --protocol udp", err)
		case err != nil:
			return nil, err
		}
	}
	root := os.Geteuid() == 0
	if !root {
		inv.Notes = append(inv.Notes, "the lanes were not planned, and what the device can do is not known: this "+
			"needs root")
	}
	if in.State, err = a.suggestState(ctx, inv, dev, root); err != nil {
		return nil, err
	}
	if took > 0 && in.Future == nil {
		if cli.IsTerminal(a.Stderr) {
			fmt.Fprintf(a.Stderr, "niclane: watching traffic for %s\n", took)
		}
		if err := inv.Watch(ctx, in.State, q, took); err != nil {
			return nil, err
		}
	}
	if root {
		if in.Applied, err = a.appliedFiles(); err != nil {
			return nil, err
		}
		in.Try = func(text string) error { return a.tryPlan(ctx, text, in.Applied) }
	}
	s, err := suggest.Make(in)
	if err != nil {
		return nil, err
	}
	return &suggestOutput{inv, s}, nil
}

// suggestState reads the devices by which services are reached, and dev.
func (a *app) suggestState(ctx context.Context, inv *services.Inventory, dev string,
	probe bool) (*device.State, error) {
	var names []string
	for _, p := range inv.Paths {
		names = append(names, p.Device)
	}
	if dev != "" && !slices.Contains(names, dev) {
		names = append(names, dev)
	}
	if len(names) == 0 {
		return &device.State{}, nil
	}
	st, err := observe.Observe(ctx, observe.Options{Devices: names, RunDir: a.RunDir, NoProbes: !probe})
	if err != nil {
		return nil, err
	}
	if dev != "" && st.Device(st.Resolve(dev)) == nil {
		return nil, fmt.Errorf("no network device %q here", dev)
	}
	return st, nil
}

// appliedFiles returns the lanes files that are applied.
func (a *app) appliedFiles() (out []suggest.Applied, err error) {
	js, err := a.Engine().Journals()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, j := range js {
		h := j.Head()
		if j.RolledBack() {
			continue
		}
		f, err := config.ParseFile(h.Config, []byte(h.ConfigText))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Config, err)
		}
		out = append(out, suggest.Applied{File: h.Config, Devices: h.Devices, Intent: f.Intent})
	}
	return out, nil
}

// tryPlan plans a lanes file as niclane plan - does: as a new version of the lanes of its devices.
func (a *app) tryPlan(ctx context.Context, text string, applied []suggest.Applied) error {
	f, err := engine.Parse(stdinName, []byte(text))
	if err != nil {
		return err
	}
	f.Locate = nil // its lines are of no file yet
	for _, x := range applied {
		if slices.ContainsFunc(f.Devices(), func(d string) bool { return slices.Contains(x.Devices, d) }) {
			f.Name = x.File
		}
	}
	_, err = a.Engine().Plan(ctx, f)
	return err
}

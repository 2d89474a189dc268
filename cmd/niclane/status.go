// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/observe"
	"github.com/niclane/niclane/plan"
	"github.com/niclane/niclane/status"
)

func (a *app) statusCommand() *cobra.Command {
	interval := time.Second
	cmd := &cobra.Command{
		Use:   "status [DEV]",
		Short: "Show the lanes that are in force: queues, NAPIs, pollers, processors, traffic",
		Long: `Status prints, for every lane applied here, its queues, their NAPIs, who polls them
on which processors, and the packets, bytes and drops since apply and per second
(measured over --interval). What a device does not count is left out.`,
		Args: atMost(1, "at most one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval <= 0 || interval > time.Minute {
				return usagef("status: --interval %v: want more than 0 and at most 1m", interval)
			}
			if err := needRoot("status"); err != nil {
				return err
			}
			return a.status(cmd.Context(), args, interval)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", interval, "time over which rates are measured")
	return cmd
}

func (a *app) status(ctx context.Context, args []string, interval time.Duration) error {
	js, err := a.journals()
	if err != nil {
		return err
	}
	var fitted []plan.FittedLane
	var devices []string
	for _, j := range js {
		for _, l := range j.Head().Plan.Lanes {
			if len(args) == 1 && l.Device != args[0] {
				continue
			}
			fitted = append(fitted, l)
			if !slices.Contains(devices, l.Device) {
				devices = append(devices, l.Device)
			}
		}
	}
	if len(fitted) == 0 {
		if len(args) == 1 {
			return fmt.Errorf("no lane is applied to %s", args[0])
		}
		if a.json {
			return a.printJSON([]status.Lane{})
		}
		fmt.Fprintln(a.stdout, "no lanes are applied here")
		return nil
	}
	st, err := observe.Observe(ctx, observe.Options{Devices: devices})
	if err != nil {
		return err
	}
	samples := map[string]status.Sample{}
	for _, d := range devices {
		s := status.Sample{Applied: a.baseline(d)}
		if s.Before, err = observe.Counters(d); err != nil {
			return err
		}
		samples[d] = s
	}
	select {
	case <-time.After(interval):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, d := range devices {
		s := samples[d]
		if s.Now, err = observe.Counters(d); err != nil {
			return err
		}
		samples[d] = s
	}
	lanes := status.Lanes(fitted, st, samples)
	if a.json {
		return a.printJSON(lanes)
	}
	return status.WriteText(a.stdout, lanes)
}

// saveBaseline records the counters right after apply, from which status
// counts. They live as long as the kernel state does: in the run directory.
func (a *app) saveBaseline(p *plan.Plan) error {
	for _, d := range p.Devices {
		c, err := observe.Counters(d)
		if err != nil {
			return err
		}
		b, err := json.Marshal(c)
		if err != nil {
			return err
		}
		path, err := a.baselinePath(d)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// baseline returns the counters at apply, zero ones if they are not known.
func (a *app) baseline(dev string) device.Counters {
	var c device.Counters
	path, err := a.baselinePath(dev)
	if err != nil {
		return c
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || json.Unmarshal(b, &c) != nil {
		return device.Counters{}
	}
	return c
}

// removeBaselines forgets the counters of lanes that are no more.
func (a *app) removeBaselines(devices []string) error {
	for _, d := range devices {
		path, err := a.baselinePath(d)
		if err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// baselinePath is one file per device and network namespace.
func (a *app) baselinePath(dev string) (string, error) {
	st, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return "", err
	}
	return filepath.Join(a.runDir, fmt.Sprintf("counters-%d-%s.json", inode(st), dev)), nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
	"github.com/niclane/niclane/watch/host"
)

func (a *app) statusCommand() *cobra.Command {
	interval := time.Second
	var watch, sent bool
	var tables int
	cmd := &cobra.Command{
		Use:   "status [DEV]",
		Short: "Show the lanes that are in force: queues, NAPIs, pollers, processors, traffic",
		Long: `Status prints, for every lane applied here, its queues, their NAPIs, who polls them
on which processors, and the packets, bytes and drops since apply and per second
(measured over --interval). What a device does not count is left out. "sent" is what
the classifier gave to a lane, by transmit queue where it knows it.

With --watch it prints rates only, again every --interval until Ctrl-C: by lane,
class and queue, and of the lane's own packets in each queue (received, sent), with
interrupts, and of polling threads the state, the share of a processor, and context
switches (of their own will + by force).

With --sent what leaves is counted as it leaves, by lane and queue, whoever's queue it
is: by a tracepoint, for which all packets of the host pay while status runs.`,
		Args: atMost(1, "at most one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval <= 0 || interval > time.Minute {
				return usagef("status: --interval %v: want more than 0 and at most 1m", interval)
			}
			if tables < 0 || tables > 0 && !watch {
				return usagef("status: --count %d: want 1 or more, with --watch", tables)
			}
			if err := needRoot("status"); err != nil {
				return err
			}
			a.noteUnconfirmed()
			if watch {
				return a.watchStatus(cmd.Context(), args, interval, tables, sent)
			}
			return a.status(cmd.Context(), args, interval, sent)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", interval, "time over which rates are measured")
	cmd.Flags().BoolVar(&sent, "sent", false, "count what leaves by lane and queue as it leaves")
	cmd.Flags().BoolVar(&watch, "watch", false, "print rates again and again")
	cmd.Flags().IntVar(&tables, "count", 0, "with --watch: end after so many tables (0: at Ctrl-C)")
	return cmd
}

// fittedLanes returns the lanes that are applied, to one device if args names
// one, and their devices.
func (a *app) fittedLanes(args []string) (fitted []plan.FittedLane, devices []string, err error) {
	js, err := a.journals()
	if err != nil {
		return nil, nil, err
	}
	for _, j := range js {
		displaced, err := host.Displaced(j.Head(), false)
		if err != nil {
			return nil, nil, err
		}
		for _, l := range j.Head().Plan.Lanes {
			if j.RolledBack() || displaced[l.Device] != "" || len(args) == 1 && l.Device != args[0] {
				continue
			}
			fitted = append(fitted, l)
			if !slices.Contains(devices, l.Device) {
				devices = append(devices, l.Device)
			}
		}
	}
	if len(fitted) == 0 && len(args) == 1 {
		return nil, nil, fmt.Errorf("no lane is applied to %s", args[0])
	}
	return fitted, devices, nil
}

// sayUnshown says of which lanes nothing is shown, or too much: those that a rollback has
// not taken away entirely, or whose device has another name, and those that are not whole.
func (a *app) sayUnshown() error {
	js, err := a.journals()
	if err != nil {
		return err
	}
	for _, j := range js {
		config := j.Head().Config
		switch {
		case j.RolledBack():
			fmt.Fprintf(a.stderr, "niclane: %s: rollback has not got to its end: %s: niclane rollback %s says what stands in its way\n", config, leftText(j.Records()), config)
		case j.Partly():
			fmt.Fprintf(a.stderr, "niclane: %s: only part of the last change is there; apply or its undoing is at work, was killed or has left something: niclane apply %s makes it whole, niclane rollback --last %s undoes it\n", config, config, config)
		}
		displaced, err := host.Displaced(j.Head(), false)
		if err != nil {
			return err
		}
		for _, dev := range slices.Sorted(maps.Keys(displaced)) {
			fmt.Fprintf(a.stderr, "niclane: %s: %s, and its lanes went with it: niclane rollback %s finds it\n", dev, displaced[dev], j.Head().Config)
		}
	}
	return nil
}

// leftText counts objects and names some.
func leftText(records []journal.Record) string {
	const named = 5
	var keys []string
	for _, r := range records {
		keys = append(keys, r.Key())
	}
	more := ""
	if len(keys) > named {
		keys, more = keys[:named], ", ..."
	}
	return fmt.Sprintf("%s left (%s%s)", count(len(records), "object"), strings.Join(keys, ", "), more)
}

func (a *app) status(ctx context.Context, args []string, interval time.Duration, exact bool) error {
	if err := a.sayUnshown(); err != nil {
		return err
	}
	fitted, devices, err := a.fittedLanes(args)
	if err != nil {
		return err
	}
	if len(fitted) == 0 {
		if a.json {
			return a.printJSON([]status.Lane{})
		}
		fmt.Fprintln(a.stdout, "no lanes are applied here")
		return nil
	}
	st, err := observe.Observe(ctx, observe.Options{Devices: devices, RunDir: a.runDir})
	if err != nil {
		return err
	}
	js, err := a.journals()
	if err != nil {
		return err
	}
	sent, notCounted, err := a.countSent(js, st, devices, exact)
	if err != nil {
		return err
	}
	defer sent.close()
	for _, why := range notCounted {
		fmt.Fprintln(a.stderr, "niclane:", why)
	}
	began, err := sent.read()
	if err != nil {
		return err
	}
	samples := map[string]status.Sample{}
	for _, d := range devices {
		s := status.Sample{Applied: a.baseline(d), SentBefore: began[d]}
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
	ended, err := sent.read()
	if err != nil {
		return err
	}
	for _, d := range devices {
		s := samples[d]
		s.SentNow = ended[d]
		if s.Now, err = observe.Counters(d); err != nil {
			return err
		}
		samples[d] = s
	}
	lanes := status.Lanes(fitted, st, samples)
	if a.json {
		return a.printJSON(lanes)
	}
	if err := status.WriteText(a.stdout, lanes); err != nil {
		return err
	}
	return niclaneapp.WriteApplications(a.stdout, a.runDir)
}

// saveBaseline records what there is right after apply: the counters, from
// which status counts, and the state, with which verify compares. They live as
// long as the kernel state does: in the run directory.
func (a *app) saveBaseline(j *journal.Journal, before *device.State) error {
	if err := a.saveApplied(j, before); err != nil {
		return err
	}
	for _, d := range j.Head().Plan.Devices {
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

// removeBaselines forgets what there was after apply of lanes that are no more.
func (a *app) removeBaselines(devices []string) error {
	for _, d := range devices {
		replaced := func(dev string) (string, error) {
			path, err := a.appliedPath(dev)
			return path + replacedSuffix, err
		}
		for _, of := range []func(string) (string, error){a.baselinePath, a.appliedPath, replaced} {
			path, err := of(d)
			if err != nil {
				return err
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (a *app) baselinePath(dev string) (string, error) { return a.runFile("counters", dev) }

func (a *app) appliedPath(dev string) (string, error) { return a.runFile("applied", dev) }

// runFile is one file per device and network namespace.
func (a *app) runFile(what, dev string) (string, error) {
	st, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return "", err
	}
	return filepath.Join(a.runDir, fmt.Sprintf("%s-%d-%s.json", what, inode(st), dev)), nil
}

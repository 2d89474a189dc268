// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/status"
)

func (a *app) statusCommand() *cobra.Command {
	interval := time.Second
	var watch, sent bool
	var tables int
	cmd := &cobra.Command{
		Use:   "status [DEV]",
		Short: "Show the lanes that are in force: queues, NAPIs, pollers, processors, traffic",
		Long: `Status says whether the applied lanes are in force, or what differs from what was
applied. Then it prints for each lane: members, queues, their NAPIs, what polls them on
which processors, and packets, bytes and drops since apply and per second (measured
over --interval). It leaves out what the device does not count. "sent" counts the
packets that the classifier gave to the lane, by transmit queue if it knows the queue.

With --watch, status prints only rates, every --interval until Ctrl-C: of each lane,
class and queue, and of the lane's own packets in each queue (received, sent). It adds
interrupts, and for each polling thread its state, its share of a processor and its
context switches (voluntary + involuntary).

With --sent, status counts packets where they leave, by lane and queue, even if the
queue is another lane's. It uses a tracepoint, which costs every packet of the host time
while status runs.`,
		Args: cli.AtMost(1, "at most one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval <= 0 || interval > time.Minute {
				return cli.Usagef("status: --interval %v: want more than 0 and at most 1m", interval)
			}
			if tables < 0 || tables > 0 && !watch {
				return cli.Usagef("status: --count %d: want 1 or more, with --watch", tables)
			}
			if err := cli.NeedRoot("status"); err != nil {
				return err
			}
			a.noteUnconfirmed()
			if watch {
				return a.watchStatus(cmd.Context(), args, interval, tables, sent)
			}
			return a.status(cmd.Context(), args, interval, sent)
		},
	}
	cli.TimeVar(cmd.Flags(), &interval, "interval", "time over which rates are measured, at most 1m")
	cmd.Flags().BoolVar(&sent, "sent", false, "count packets where they leave, by lane and queue")
	cmd.Flags().BoolVar(&watch, "watch", false, "print rates every --interval")
	cmd.Flags().IntVar(&tables, "count", 0, "with --watch: end after this number of tables (0, the default: at Ctrl-C)")
	return cmd
}

// sayUnshown prints a note for each lanes file whose lanes status cannot show completely or
// correctly. The reason is an unfinished rollback or apply, or a device that was renamed.
func (a *app) sayUnshown() error {
	js, err := a.Engine().Journals()
	if err != nil {
		return err
	}
	for _, j := range js {
		config := j.Head().Config
		switch {
		case j.RolledBack():
			fmt.Fprintf(a.Stderr, "niclane: %s: the rollback is not complete: %s: niclane rollback %s tries again and "+
				"reports what prevents it\n", config, leftText(j.Records()), config)
		case j.Partly():
			fmt.Fprintf(a.Stderr, "niclane: %s: only part of the last change is there: apply or its rollback still "+
				"runs, was killed or has left something; niclane apply %s completes the change, niclane rollback "+
				"--last %s undoes it\n", config, config, config)
		}
		displaced, err := engine.Displaced(j.Head(), false)
		if err != nil {
			return err
		}
		for _, dev := range slices.Sorted(maps.Keys(displaced)) {
			fmt.Fprintf(a.Stderr, "niclane: %s: %s, and its lanes went with it: niclane rollback %s finds it\n", dev,
				displaced[dev], j.Head().Config)
		}
	}
	return nil
}

// leftText returns a text with the number of objects that are left, and the names of the first
// ones.
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
	return fmt.Sprintf("%s left (%s%s)", cli.Plural(len(records), "object"), strings.Join(keys, ", "), more)
}

func (a *app) status(ctx context.Context, args []string, interval time.Duration, exact bool) error {
	if err := a.sayUnshown(); err != nil {
		return err
	}
	fitted, devices, err := a.Engine().Fitted(first(args))
	if err != nil {
		return err
	}
	if len(fitted) == 0 {
		if a.JSON {
			return a.PrintJSON([]status.Lane{})
		}
		fmt.Fprintln(a.Stdout, "no lanes are applied here")
		return nil
	}
	js, err := a.Engine().Journals()
	if err != nil {
		return err
	}
	inForce, err := a.compareApplied(ctx, devices)
	if err != nil {
		return err
	}
	st, _, err := a.Engine().Observe(ctx, devices, nil)
	if err != nil {
		return err
	}
	sent, notCounted, err := a.countSent(js, st, devices, exact)
	if err != nil {
		return err
	}
	defer sent.close()
	for _, why := range notCounted {
		fmt.Fprintln(a.Stderr, "niclane:", why)
	}
	began, err := sent.read()
	if err != nil {
		return err
	}
	samples := map[string]status.Sample{}
	for _, d := range devices {
		s := status.Sample{Applied: a.Engine().Counters(d), SentBefore: began[d]}
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
	for i := range lanes {
		inForce.add(&lanes[i])
	}
	if a.JSON {
		return a.PrintJSON(lanes)
	}
	if err := errors.Join(inForce.write(a.Stdout), status.WriteText(a.Stdout, lanes)); err != nil {
		return err
	}
	return niclaneapp.WriteApplications(a.Stdout, a.RunDir)
}

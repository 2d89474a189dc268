// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/spf13/cobra"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/traffic/napi"
)

func (a *app) adviseCommand() *cobra.Command {
	var lane, application string
	var measure time.Duration
	cmd := &cobra.Command{
		Use:   "advise --lane NAME [FILE]",
		Short: "Print the settings with which applications match a lane",
		Long: `Advise prints settings with which applications match an applied lane: worker counts,
processors and listeners. For applications that place connections by NAPI ID, it also
prints the number of the lane's NAPIs. It adds reasons, cautions and sources. If
several files have a lane of this name, give FILE. Advise changes nothing.

With --measure it measures for that time how idle the processors are and how often the
lane's queues are polled, and says which poller would pay, and why. Measure under load.`,
		Args: cli.AtMost(1, "at most one lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lane == "" {
				return cli.Usagef("advise: --lane: name an applied lane")
			}
			if err := cli.NeedRoot("advise"); err != nil {
				return err
			}
			if measure != 0 && (measure < time.Second || measure > time.Minute) {
				return cli.Usagef("advise: --measure %s: want 1s to 1m", measure)
			}
			l, err := a.findLane(lane, strings.Join(args, ""))
			if err != nil {
				return err
			}
			as, err := niclaneapp.Advise(l, application)
			if err != nil {
				return cli.Usagef("advise: --for: %w", err)
			}
			if measure > 0 {
				poller, err := a.advisePoller(cmd.Context(), l, measure)
				if err != nil {
					return err
				}
				as = append([]niclaneapp.Advice{poller}, as...)
			}
			if a.JSON {
				return a.PrintJSON(as)
			}
			niclaneapp.WriteAdvice(a.Stdout, l, as)
			return nil
		},
	}
	cmd.Flags().StringVar(&lane, "lane", "", "the lane's name (required)")
	cmd.Flags().StringVar(&application, "for", "", "only this `application` ("+
		strings.Join(niclaneapp.Applications(), ", ")+"); default: all")
	cmd.Flags().DurationVar(&measure, "measure", 0, "measure for this `time` which poller would pay (1s to 1m)")
	return cmd
}

// advisePoller measures the processors and the lane's queues for a time.
func (a *app) advisePoller(ctx context.Context, l niclaneapp.Lane, took time.Duration) (niclaneapp.Advice, error) {
	st, _, err := a.Engine().Observe(ctx, l.Devices(), nil)
	if err != nil {
		return niclaneapp.Advice{}, err
	}
	s := niclaneapp.PollerSample{Seconds: took.Seconds(), Idle: map[int]float64{}}
	var counters []*napi.Counter
	defer func() {
		for _, c := range counters {
			_ = c.Close()
		}
	}()
	ids := map[int]bool{}
	for _, f := range l.Fitted {
		d := st.Device(f.Device)
		if d == nil {
			return niclaneapp.Advice{}, fmt.Errorf("no network device %q here", f.Device)
		}
		for _, n := range d.NAPIs {
			ids[int(n.ID)] = ids[int(n.ID)] || slices.Contains(f.Queues, n.Config.Queue)
		}
		c, err := napi.Open(d.Index)
		if err != nil {
			s.NoPolls = err.Error()
			continue
		}
		counters = append(counters, c)
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return niclaneapp.Advice{}, err
	}
	before, err := fs.Stat()
	if err != nil {
		return niclaneapp.Advice{}, fmt.Errorf("/proc/stat: %w", err)
	}
	select {
	case <-ctx.Done():
		return niclaneapp.Advice{}, context.Cause(ctx)
	case <-time.After(took):
	}
	after, err := fs.Stat()
	if err != nil {
		return niclaneapp.Advice{}, fmt.Errorf("/proc/stat: %w", err)
	}
	for id, now := range after.CPU {
		was := before.CPU[id]
		// A processor that the hypervisor takes away is not free.
		idle := now.Idle + now.Iowait - was.Idle - was.Iowait
		work := now.User + now.Nice + now.System + now.IRQ + now.SoftIRQ + now.Steal - was.User - was.Nice -
			was.System - was.IRQ - was.SoftIRQ - was.Steal
		if idle+work > 0 {
			s.Idle[int(id)] = idle / (idle + work)
		}
	}
	for _, c := range counters {
		counts, err := c.Read()
		if err != nil {
			return niclaneapp.Advice{}, err
		}
		for _, n := range counts {
			if ids[n.NAPI] {
				s.Polls = append(s.Polls, n)
			}
		}
	}
	return niclaneapp.AdvisePoller(l, st.CPUs, s), nil
}

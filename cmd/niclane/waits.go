// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/live/services"
	"github.com/niclane/niclane/live/waits"
)

func (a *app) waitsCommand() *cobra.Command {
	var c waits.Choice
	o := waits.Options{MaxCost: waits.DefaultMaxCost, SampleRate: 1}
	took := 10 * time.Second
	var watch bool
	var tables int
	cmd := &cobra.Command{
		Use:   "waits [DEV]",
		Short: "Show where requests spend their time in this host, from live traffic",
		Long: `Waits follows the requests of this host's services for --for, and prints for each service
how long its requests waited in each part of the host: P50, P90, P99 and P99.9. It names
what was in front of the slow ones, and says whether a lane shortens the longest wait.

A request begins with the first data after the previous answer, and ends with the first
data that the service writes after it took the request. The parts are:

  card-to-stack    from the card's timestamp, or else its interrupt, to the packet in
                   the network stack
  stack-to-socket  to the readable socket
  socket-to-app    to the read that takes the request
  app              to the write of the answer: the service's own time
  socket-to-card   to the packet with the driver
  card             to the transmit completion; it is no part of the sum
  host             the whole, from the card or its interrupt to the driver

Without options it measures all services that other hosts reach. With DEV, requests come
and answers leave by that device. A service in a container or pod with a network of its
own is measured if --pid or --container names it, or if a lane has its port.

Waits uses eBPF at tracepoints (Linux 5.10 with BTF, CAP_BPF, CAP_PERFMON). They are
attached only while it runs. It measures its own cost, and follows fewer requests rather
than take more than --max-cost of the services' processor time.`,
		Args: cli.AtMost(1, "at most one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case took < time.Second || took > 24*time.Hour:
				return cli.Usagef("waits: --for %v: want 1s to 24h", took)
			case o.MaxCost <= 0 || o.MaxCost > 1:
				return cli.Usagef("waits: --max-cost %g: want more than 0 and at most 1", o.MaxCost)
			case o.SampleRate <= 0 || o.SampleRate > 1:
				return cli.Usagef("waits: --sample %g: want more than 0 and at most 1", o.SampleRate)
			case tables < 0 || tables > 0 && !watch:
				return cli.Usagef("waits: --count %d: want 1 or more, with --watch", tables)
			}
			if err := checkQuery("waits", c.Query); err != nil {
				return err
			}
			if err := cli.NeedRoot("waits"); err != nil {
				return err
			}
			c.Device, o.Device = first(args), first(args)
			o.FixedRate = cmd.Flags().Changed("sample")
			if !watch {
				tables = 1
			}
			return a.waits(cmd.Context(), c, o, took, tables)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Lane, "lane", "", "only the services in this `lane`")
	f.Uint16Var(&c.Port, "port", 0, "only the services at this `port`")
	f.StringVar(&c.Protocol, "protocol", "", "tcp or udp: the `protocol` of --port")
	f.IntVar(&c.PID, "pid", 0, "only the services of this process")
	f.StringVar(&c.Unit, "unit", "", "only the services of this systemd `unit`")
	f.StringVar(&c.Container, "container", "", "only the services of the container with this `ID`")
	cli.TimeVar(f, &took, "for", "measure for this time, at most 24h")
	f.BoolVar(&watch, "watch", false, "print a table for each --for, until Ctrl-C")
	f.IntVar(&tables, "count", 0, "with --watch: end after this number of tables (0: at Ctrl-C)")
	f.Float64Var(&o.MaxCost, "max-cost", o.MaxCost, "largest `share` of the services' processor time, 0 to 1")
	f.Float64Var(&o.SampleRate, "sample", o.SampleRate, "follow requests in this `share` of the time, at any cost")
	return cmd
}

// checkQuery checks that at most one service is named.
func checkQuery(command string, q services.Query) error {
	named := 0
	for _, is := range []bool{q.Unit != "", q.PID != 0, q.Port != 0, q.Container != ""} {
		if is {
			named++
		}
	}
	switch {
	case named > 1:
		return cli.Usagef("%s: give at most one of --unit, --pid, --port and --container", command)
	case q.Protocol != "" && q.Port == 0:
		return cli.Usagef("%s: --protocol: it goes with --port", command)
	case q.Protocol != "" && q.Protocol != "tcp" && q.Protocol != "udp":
		return cli.Usagef("%s: --protocol %s: want tcp or udp", command, q.Protocol)
	case q.PID < 0:
		return cli.Usagef("%s: --pid %d: want the ID of a process", command, q.PID)
	}
	return nil
}

// waits measures and prints a table for each period, count times; 0: until an interrupt. An interrupt
// ends the last period early.
func (a *app) waits(ctx context.Context, choice waits.Choice, o waits.Options, period time.Duration, count int) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	if o.Device != "" {
		if _, err := net.InterfaceByName(o.Device); err != nil {
			return fmt.Errorf("%s: %w", o.Device, unix.ENODEV)
		}
	}
	lanes, err := a.lanesInForce(o.Device)
	if err != nil {
		return err
	}
	inv, err := services.Find(ctx)
	if err != nil {
		return err
	}
	var notes []string
	if o.Targets, notes, err = waits.Targets(inv, lanes, choice); err != nil {
		return err
	}
	c, err := waits.Open(context.WithoutCancel(ctx), o)
	if err != nil {
		return err
	}
	defer c.Close()
	var before waits.Snapshot
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for n := 0; (count == 0 || n < count) && ctx.Err() == nil; n++ {
		select {
		case <-ticks.C:
		case <-ctx.Done():
		}
		now, err := c.Snapshot()
		if err != nil {
			return err
		}
		if o.Device != "" {
			if _, err := net.InterfaceByName(o.Device); err != nil {
				return fmt.Errorf("%s went away: %w", o.Device, unix.ENODEV)
			}
		}
		if err := a.printWaits(now.Sub(before).Report(o.Device, notes...), count != 1); err != nil {
			return err
		}
		before = now
	}
	return c.Close()
}

// lanesInForce returns the lanes of all files that are applied to a device; "": to any.
func (a *app) lanesInForce(dev string) ([]intent.Lane, error) {
	js, err := a.Engine().Journals()
	if err != nil {
		return nil, err
	}
	return lanesOf(slices.DeleteFunc(js, func(j *journal.Journal) bool {
		return dev != "" && !slices.Contains(j.Head().Devices, dev)
	}))
}

// lanesOf returns the lanes that journals record as applied.
func lanesOf(js []*journal.Journal) (lanes []intent.Lane, err error) {
	for _, j := range js {
		if j.RolledBack() {
			continue
		}
		f, err := engine.Parse(j.Head().Config, []byte(j.Head().ConfigText))
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, f.Intent.Lanes...)
	}
	return lanes, nil
}

func (a *app) printWaits(r waits.Report, line bool) error {
	switch {
	case !a.JSON:
		return r.Write(a.Stdout)
	case line:
		return a.PrintJSONLine(r)
	}
	return a.PrintJSON(r)
}

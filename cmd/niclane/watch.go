// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/lane/intent"
	livemetrics "github.com/niclane/niclane/live/metrics"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/host"
	"github.com/niclane/niclane/watch/metrics"
)

// waitsNeedMetrics says why --waits does not go with --listen none.
const waitsNeedMetrics = "--waits: its histograms are metrics, and --listen none serves none"

func (a *app) watchCommand() *cobra.Command {
	var listen string
	var waits bool
	cmd := &cobra.Command{
		Use:   "watch [FILE]",
		Short: "Keep lanes as they were applied, and say what happens to them",
		Long: `Watch keeps lanes as they were applied and prints a line for each event. It waits for
the kernel's notifications, compares the lanes with the kernel as verify does, and
repairs what a link that went down, a reloaded driver, another program or a person
removed. It also looks every 30 s, because the kernel does not report every change.

With FILE, watch first makes the lanes of FILE, as soon as the device and the control
groups in FILE exist, and then keeps them. Without FILE, it keeps all lanes that are
applied in this network namespace, now and later. It keeps what was applied: a change
of FILE counts after niclane apply FILE. It does not repair lanes that were rolled back.

If an object keeps changing, watch waits longer before each repair. After nine repairs
in 8.5 minutes it leaves the object and reports it; niclane apply FILE makes it try
again. When watch ends, the lanes stay.

Watch serves metrics for Prometheus (/metrics) and health (/healthz) on a Unix socket,
watch-DEV.sock in the run directory (watch.sock without FILE), or at --listen:
unix:PATH, or IP:PORT of a loopback address. With --waits, the metrics have histograms
of the waits of requests to the ports of the lanes, as niclane waits measures them, for
at most 5 % of the services' processor time.

A device has one watch. It is meant to run as a service (niclane persist writes one) and
tells systemd that it is ready and alive.`,
		Args: cli.AtMost(1, "at most one lanes file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r *request
			if len(args) == 1 {
				var err error
				if r, err = readRequest(args[0]); err == nil {
					err = checkUnit(r)
				}
				if err != nil {
					return err
				}
			}
			at, err := parseListen(listen)
			if err != nil {
				return cli.Usagef("watch: --listen %w", err)
			}
			if waits && at == nil {
				return cli.Usagef("watch: %s", waitsNeedMetrics)
			}
			if err := cli.NeedRoot("watch"); err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return a.watch(ctx, r, at, waits)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "address of metrics and health: "+
		"`unix:PATH|IP:PORT|none` (default: a Unix socket in the run directory)")
	cmd.Flags().BoolVar(&waits, "waits", false, "also measure where requests to the lanes wait, as histograms")
	return cmd
}

// parseListen parses the value of --listen. It returns nil for "none", and a zero address for the
// default socket.
func parseListen(s string) (*metrics.Address, error) {
	switch s {
	case "":
		return &metrics.Address{}, nil
	case "none":
		return nil, nil
	}
	at, err := metrics.ParseAddress(s)
	return &at, err
}

func (a *app) watch(ctx context.Context, r *request, at *metrics.Address, waits bool) (err error) {
	report := watch.WriteText(a.Stdout)
	if a.JSON {
		report = watch.WriteJSON(a.Stdout)
	}
	source, err := notify.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	m := &host.Machine{Engine: a.Engine(), Source: source, Report: report, Alone: true}
	defer func() { err = errors.Join(err, m.Close()) }()
	s := newSupervisor()
	k := watch.NewKeeper(m, watch.Options{Report: s.also(report), Alive: s.alive, Heartbeat: s.heartbeat})
	first := ""
	if r != nil {
		m.Config = r.config
		if devices := r.file().Devices(); len(devices) > 0 {
			first = devices[0]
		}
		err := m.Begin(ctx, r.file(), host.Waiting{Events: source.Events(), Ready: s.ready, Alive: s.alive,
			Heartbeat: s.heartbeat})
		if err != nil || ctx.Err() != nil {
			return err
		}
	} else if err := m.LockAll(); err != nil {
		return err
	}
	var more []prometheus.Collector
	if waits {
		w, werr := livemetrics.Open(ctx, func() ([]intent.Lane, error) {
			js, err := m.Journals()
			if err != nil {
				return nil, err
			}
			return lanesOf(js)
		})
		if werr != nil {
			return fmt.Errorf("--waits: %w", werr)
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		more = append(more, w)
	}
	server, err := a.serveHealth(at, k, m, first, more...)
	if err != nil {
		return err
	}
	if server != nil {
		defer func() { err = errors.Join(err, server.Close()) }()
	}
	s.ready("keeping lanes")
	defer s.stopping()
	return watch.Run(ctx, k, source.Events())
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/host"
	"github.com/niclane/niclane/watch/metrics"
)

func (a *app) watchCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "watch [FILE]",
		Short: "Keep lanes as they were applied, and say what happens to them",
		Long: `Watch waits for the kernel to say that something has changed, compares the lanes
with it as verify does, and makes again what a link that went down, a driver that
was reloaded, another program or somebody's tc took away. What happens it says, a
line each. It asks nothing again and again but every 30 s, for what the kernel
tells nobody about.

With FILE it makes its lanes first, as apply does, as soon as the device and the
control groups that FILE names are there, and keeps them. Without, it keeps all
that are applied in this network namespace, now and later. It keeps what was
applied, not what FILE says meanwhile: apply FILE changes that. Lanes that are
rolled back are not made again.

What comes back again and again is repaired later each time, and after nine times
in 8.5 minutes left as it is, which it says; apply FILE has it try anew. When it
ends, lanes stay as they are.

Metrics for Prometheus (/metrics) and whether all is well (/healthz) are shown on a
Unix socket, watch-DEV.sock in the run directory (watch.sock without FILE), or
where --listen says: unix:PATH, or IP:PORT of a loopback address.

A device has one watch. It is meant as a service (niclane persist writes one), and
tells systemd when it is ready and alive.`,
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
			if err := cli.NeedRoot("watch"); err != nil {
				return err
			}
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return a.watch(ctx, r, at)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "where metrics and health are shown: `unix:PATH|IP:PORT|none`")
	return cmd
}

// parseListen parses --listen. nil means no listener, and a zero address the default one.
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

func (a *app) watch(ctx context.Context, r *request, at *metrics.Address) (err error) {
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
	server, err := a.serveHealth(at, k, m, first)
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

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

	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/lane/apply"
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
control groups that FILE names are there, and keeps them. Without, it keeps all that are applied in this network namespace,
now and later. It keeps what was applied, not what FILE says meanwhile: apply
FILE changes that. Lanes that are rolled back are not made again.

What comes back again and again is repaired later each time, and after nine times
in 8.5 minutes left as it is, which it says; apply FILE has it try anew. When it
ends, lanes stay as they are.

Metrics for Prometheus (/metrics) and whether all is well (/healthz) are shown on a
Unix socket, watch-DEV.sock in the run directory (watch.sock without FILE), or
where --listen says: unix:PATH, or IP:PORT of a loopback address.

A device has one watch. It is meant as a service (niclane persist writes one), and
tells systemd when it is ready and alive.`,
		Args: atMost(1, "at most one lanes file"),
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
				return usagef("watch: --listen %w", err)
			}
			if err := needRoot("watch"); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.watch(ctx, r, at)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "where metrics and health are shown; none: nowhere")
	return cmd
}

// parseListen reads --listen; nil is nowhere, and a zero address the usual one.
func parseListen(s string) (*health.Address, error) {
	switch s {
	case "":
		return &health.Address{}, nil
	case "none":
		return nil, nil
	}
	at, err := health.ParseAddress(s)
	return &at, err
}

func (a *app) watch(ctx context.Context, r *request, at *health.Address) (err error) {
	report := stay.WriteText(a.stdout)
	if a.json {
		report = stay.WriteJSON(a.stdout)
	}
	m := &machine{a: a, report: report, claims: map[string]*apply.Lock{}}
	defer func() { err = errors.Join(err, m.close()) }()
	if m.source, err = notify.Open(); err != nil {
		return err
	}
	s := newSupervisor()
	k := stay.NewKeeper(m, stay.Options{Report: s.also(report), Alive: s.alive, Heartbeat: s.heartbeat})
	if r != nil {
		m.config = r.config
		if devices := groupOf(r.Intent); len(devices) > 0 {
			m.first = devices[0]
		}
		if err := m.begin(ctx, r, s); err != nil || ctx.Err() != nil {
			return err
		}
	} else if err := m.claimAll(); err != nil {
		return err
	}
	server, err := a.serveHealth(at, k, m)
	if err != nil {
		return err
	}
	if server != nil {
		defer func() { err = errors.Join(err, server.Close()) }()
	}
	s.ready("keeping lanes")
	defer s.stopping()
	return stay.Run(ctx, k, m.source.Events())
}

// begin makes the lanes of r as soon as their devices are there.
func (m *machine) begin(ctx context.Context, r *request, s *supervisor) error {
	for _, dev := range groupOf(r.Intent) {
		if err := m.claim(dev); err != nil {
			return err
		}
	}
	told := map[string]string{}
	for {
		waits, err := m.awaited(ctx, r)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if kept, err := m.kept(waits); kept || err != nil {
			return err
		}
		if len(waits) == 0 {
			err := m.apply(ctx, r)
			if !errors.Is(err, stay.ErrBusy) {
				return err
			}
			waits = map[string]string{"": err.Error()}
		}
		for _, what := range slices.Sorted(maps.Keys(waits)) {
			if told[what] == waits[what] {
				continue
			}
			e := stay.Event{Time: time.Now(), Kind: stay.Waiting, Config: r.config, Device: what, Text: waits[what]}
			if strings.HasPrefix(what, "/") {
				e.Device, e.Key = "", what
			}
			m.report(e)
		}
		told = waits
		// A boot does not wait for a device or group that may never come.
		s.ready("waiting for a device or a control group")
		s.alive()
		wait := stay.Again
		if _, busy := waits[""]; busy {
			wait = time.Second
		}
		if s.heartbeat > 0 {
			wait = min(wait, s.heartbeat)
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-m.source.Events():
			if !ok {
				return errors.New("the kernel's notifications have ended")
			}
		case <-time.After(wait):
		}
	}
}

// kept reports whether nothing but control groups is waited for, of lanes that are
// applied already: they are kept meanwhile.
func (m *machine) kept(waits map[string]string) (bool, error) {
	for what := range waits {
		if !strings.HasPrefix(what, "/") {
			return false, nil
		}
	}
	if len(waits) == 0 {
		return false, nil
	}
	js, err := m.journals()
	return len(js) > 0, err
}

// awaited says which devices and control groups of r are not there, or not ready,
// and why.
func (m *machine) awaited(ctx context.Context, r *request) (map[string]string, error) {
	devices, groups := groupOf(r.Intent), host.Groups(r.Intent)
	displaced, err := m.displaced()
	if err != nil {
		return nil, err
	}
	for range lookAgain {
		st, known, err := host.Observe(ctx, m.a.runDir, devices, groups)
		if err != nil {
			return nil, err
		}
		grown, err := m.source.Watch(m.names.Interest(host.From{State: st, Devices: devices, Known: known, Groups: groups}))
		if err != nil {
			return nil, err
		}
		if grown {
			continue
		}
		waits := map[string]string{}
		maps.Copy(waits, host.Waits(devices, st, displaced))
		for _, g := range groups {
			if !st.Cgroups.Exists(g) {
				waits[g] = "there is no such control group: the lanes are made as soon as there is"
			}
		}
		return waits, nil
	}
	return nil, errors.New("devices change faster than they can be looked at")
}

// displaced are the devices of what is kept that have other names now.
func (m *machine) displaced() (map[string]string, error) {
	js, err := m.journals()
	out := map[string]string{}
	for _, j := range js {
		more, derr := host.Displaced(j.Head(), false)
		err = errors.Join(err, derr)
		maps.Copy(out, more)
	}
	return out, err
}

// apply is niclane apply, but waits for nobody: stay.ErrBusy.
func (m *machine) apply(ctx context.Context, r *request) error {
	release, err := m.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	began := time.Now()
	done, warnings, err := m.a.make(ctx, r, func(string) bool { return false })
	if err != nil {
		return err
	}
	e := stay.Event{Time: time.Now(), Kind: stay.Notice, Config: r.config, Objects: done, After: time.Since(began),
		Text: fmt.Sprintf("applied, %s", count(len(done), "step"))}
	if len(done) == 0 {
		e.Text = "nothing to do: the machine is as the file says"
	}
	m.report(e)
	for _, w := range warnings {
		m.report(stay.Event{Time: time.Now(), Kind: stay.Notice, Config: r.config, Text: w})
	}
	return nil
}

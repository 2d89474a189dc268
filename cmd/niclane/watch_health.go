// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/host"
	"github.com/niclane/niclane/watch/metrics"
)

// serveHealth starts a server for metrics and health at the address at. If at is nil, it returns
// nil. more are further metrics.
func (a *app) serveHealth(at *metrics.Address, k *watch.Keeper, m *host.Machine, first string,
	more ...prometheus.Collector) (*metrics.Server, error) {
	if at == nil {
		return nil, nil
	}
	if at.Network == "" {
		name := "watch.sock"
		if m.Config != "" {
			name = "watch-" + first + ".sock"
		}
		dir, err := filepath.Abs(a.RunDir)
		if err != nil {
			return nil, err
		}
		at = &metrics.Address{Network: "unix", Address: filepath.Join(dir, name)}
	}
	return metrics.Serve(*at, k, func(ctx context.Context) (metrics.Reading, error) { return a.readCounters(ctx, m) },
		more...)
}

// readCounters reads those counters of the kept lanes that count all the time. It attaches no
// counting program.
func (a *app) readCounters(ctx context.Context, m *host.Machine) (metrics.Reading, error) {
	var r metrics.Reading
	js, err := m.Journals()
	if err != nil || len(js) == 0 {
		return r, err
	}
	var devices []string
	for _, j := range js {
		r.Lanes = append(r.Lanes, j.Head().Plan.Lanes...)
		devices = append(devices, j.Head().Devices...)
	}
	if devices = present(devices); len(devices) == 0 {
		r.Lanes = nil
		return r, nil // an empty list would observe all devices
	}
	r.Lanes = slices.DeleteFunc(r.Lanes, func(l plan.FittedLane) bool { return !slices.Contains(devices, l.Device) })
	rater, err := a.newRater(ctx, r.Lanes, devices, false)
	if err != nil {
		return r, err
	}
	defer rater.close()
	r.Moment, _, r.State, err = rater.read(ctx)
	return r, err
}

// present returns the devices that exist. The others have no counters.
func present(devices []string) []string {
	var out []string
	for _, d := range devices {
		if _, err := net.InterfaceByName(d); err == nil {
			out = append(out, d)
		}
	}
	return out
}

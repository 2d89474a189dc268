// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"path/filepath"
	"slices"

	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/metrics"
)

// serveHealth shows metrics and health; nil if at is.
func (a *app) serveHealth(at *health.Address, k *stay.Keeper, m *machine) (*health.Server, error) {
	if at == nil {
		return nil, nil
	}
	if at.Network == "" {
		name := "watch.sock"
		if m.config != "" {
			name = "watch-" + m.first + ".sock"
		}
		dir, err := filepath.Abs(a.runDir)
		if err != nil {
			return nil, err
		}
		at = &health.Address{Network: "unix", Address: filepath.Join(dir, name)}
	}
	return health.Serve(*at, k, m.read)
}

// read reads the counters of the lanes that are kept, those that are always on.
func (m *machine) read(ctx context.Context) (health.Reading, error) {
	var r health.Reading
	js, err := m.journals()
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
		return r, nil // none is no limit to observe
	}
	r.Lanes = slices.DeleteFunc(r.Lanes, func(l plan.FittedLane) bool { return !slices.Contains(devices, l.Device) })
	rater, err := m.a.newRater(ctx, r.Lanes, devices, false)
	if err != nil {
		return r, err
	}
	defer rater.close()
	r.Moment, _, r.State, err = rater.read(ctx)
	return r, err
}

// present leaves out devices that are not there: they count nothing.
func present(devices []string) []string {
	var out []string
	for _, d := range devices {
		if _, err := net.InterfaceByName(d); err == nil {
			out = append(out, d)
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

// Package lanetest applies a lanes file in the namespace of a test. It uses the same packages as
// niclane apply. It is for tests only.
package lanetest

import (
	"testing"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

// Observe returns the state of devices.
func Observe(t testing.TB, devices ...string) *device.State {
	t.Helper()
	st, err := observe.Observe(t.Context(), observe.Options{Devices: devices})
	must.Do(t, err)
	return st
}

// XDPPackets returns how many packets niclane's XDP program on a device has counted: those of the
// first lane, and all.
func XDPPackets(t testing.TB, dev string) (lane, all uint64) {
	t.Helper()
	c, err := tc.Open()
	must.Do(t, err)
	defer c.Close()
	b := bpf.New(c)
	defer b.Close()
	counters, err := b.XDPCounters(dev)
	must.Do(t, err)
	for _, c := range counters {
		all += c.Packets
		if c.Lane == 1 {
			lane += c.Packets
		}
	}
	return lane, all
}

// Apply applies a lanes file to devices whose present state is st. The journal exists only in
// memory.
func Apply(t testing.TB, k *apply.System, lanes string, st *device.State) *journal.Journal {
	t.Helper()
	f, err := config.ParseFile("lanes.yaml", []byte(lanes))
	must.Do(t, err)
	host, err := journal.Here()
	must.Do(t, err)
	p, err := plan.Make(f.Intent, st, plan.Owned{})
	must.Do(t, err)
	j := journal.New(journal.Head{Host: host, Config: "/test", Generation: 1, Devices: p.Devices, Plan: p})
	if _, err := apply.Run(t.Context(), k, p, j, apply.Options{}); err != nil {
		t.Fatal(err)
	}
	return j
}

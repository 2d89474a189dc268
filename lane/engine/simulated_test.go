// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
)

// TestSimulated compares device.State.Put, which the kernel in memory uses, with the real kernel.
// Put for the steps of a plan must give the state that the kernel has after these steps. Put for
// the inverse steps must give the state before.
func TestSimulated(t *testing.T) {
	lanes := "lanes:\n  web: {queues: 2, ports: [80], rank: 1, ceiling: 50%}\n  db: {queues: 1, ports: [5432]}\n"
	for name, globals := range map[string]string{
		"htb":     "link-rate: 1gbit, force: {bandwidth: htb}",
		"threads": "pollers: 1, poller: thread, force: {poller: napi-thread-device}",
		"queues":  "pollers: 1, poller: thread",
		"mqprio":  "force: {mapper: mqprio-software}",
		"xdp":     "force: {queue-set: xdp-cpumap-generic}",
	} {
		t.Run(name, func(t *testing.T) {
			dev := vethtest.Uplink(t)
			// With GRO on, the veth has NAPIs.
			if out, err := exec.Command("ethtool", "-K", dev, "gro", "on").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			e := newEngine(t)
			now := func() *device.State {
				t.Helper()
				st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{dev}, RunDir: e.RunDir})
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
			f, err := Parse("/lanes.yaml", []byte("version: 1\nglobals: {dev: "+dev+", "+globals+"}\n"+lanes))
			if err != nil {
				t.Fatal(err)
			}
			before := now()
			r, err := e.Apply(t.Context(), f, ApplyOptions{})
			if err != nil && strings.Contains(err.Error(), "not supported") {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			applied := now()
			same := func(when string, simulated, found *device.State) {
				t.Helper()
				if diff := cmp.Diff(words(simulated), words(found)); diff != "" {
					t.Errorf("%s (-simulated +found):\n%s", when, diff)
				}
			}
			simulated := before.Clone()
			for _, s := range r.Plan.Steps {
				simulated.Put(s.Old, s.New)
			}
			same("after apply", simulated, applied)
			rollback(t, e)
			simulated = applied.Clone()
			for _, s := range slices.Backward(r.Plan.Steps) {
				simulated.Put(s.New, s.Old)
			}
			same("after rollback", simulated, now())
		})
	}
}

// words returns the values of all objects as text, by key.
func words(st *device.State) map[string]string {
	out := map[string]string{}
	for key, o := range st.Objects() {
		out[key] = strings.TrimSpace(o.Brief())
	}
	return out
}

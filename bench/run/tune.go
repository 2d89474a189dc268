// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/tune"
	"github.com/niclane/niclane/lab"
)

// tuneTime is how long a variant's tuning may take to be in force.
const tuneTime = 10 * time.Second

// SetTune replaces the present tuning by that of a variant. A process on the SUT keeps the settings
// and restores the old ones when it ends. It ends with the agent's session at the latest.
func (m *measurement) SetTune(ctx context.Context, v experiment.Variant) error {
	if reflect.DeepEqual(v.Tune, m.tuned) {
		return nil
	}
	if err := m.untune(); err != nil {
		return err
	}
	if v.Tune == nil {
		return nil
	}
	c := tune.Config{Sysctls: v.Tune.Sysctls, Device: m.on.names()[experiment.NameDevice], Symmetric: v.Tune.Symmetric,
		NAPIThreads: v.Tune.NAPIThreads}
	t, err := m.on.launch(ctx, launch{what: "tune", host: lab.SUT, part: "tune", config: c})
	if err != nil {
		return err
	}
	m.tuner, m.tuned = t, v.Tune
	c.Check = true
	return until(ctx, "tune", func(ctx context.Context) error {
		var r tune.Result
		return outcome(ctx, m.on, launch{what: "tune, check", host: lab.SUT, part: "tune", config: c}, &r)
	}, tuneTime, m.tuner.ended)
}

// untune restores the previous settings.
func (m *measurement) untune() error {
	if m.tuner == nil {
		return nil
	}
	err := m.tuner.stop()
	m.tuner, m.tuned = nil, nil
	return err
}

// tuneText describes a variant's tuning.
func tuneText(t *experiment.Tune) string {
	var out []string
	if t.Symmetric {
		out = append(out, "each transmit queue sends what its receive queue received (xps_rxqs)")
	}
	if t.NAPIThreads {
		out = append(out, "kernel threads poll the device")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Sysctls)) {
		out = append(out, name+" "+t.Sysctls[name])
	}
	return "tuned by hand: " + strings.Join(out, "; ")
}

// serverText describes a variant's server settings.
func serverText(s *experiment.VariantServer) string {
	var out []string
	if s.Threads > 0 {
		out = append(out, fmt.Sprintf("%d threads", s.Threads))
	}
	if len(s.Arguments) > 0 {
		out = append(out, strings.Join(s.Arguments, " "))
	}
	if len(s.Files) > 0 {
		out = append(out, "other "+strings.Join(slices.Sorted(maps.Keys(s.Files)), ", "))
	}
	if s.KernelTLS {
		out = append(out, "the kernel encrypts")
	}
	for _, resource := range slices.Sorted(maps.Keys(s.Limits)) {
		out = append(out, fmt.Sprintf("limits of %s: %s", resource, s.Limits[resource]))
	}
	return "server: " + strings.Join(out, "; ")
}

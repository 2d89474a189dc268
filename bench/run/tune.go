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

// SetTune replaces the present tuning by that of a variant. It returns what it has left out. A
// process on the SUT keeps the settings and restores the old ones when it ends. If it is killed, the
// agent restores them at the end of its session at the latest.
func (m *measurement) SetTune(ctx context.Context, v experiment.Variant) (leftOut []string, err error) {
	if reflect.DeepEqual(v.Tune, m.tuned) {
		return nil, nil
	}
	if err := m.untune(); err != nil {
		return nil, err
	}
	if v.Tune == nil {
		return nil, nil
	}
	c := tuning(v.Tune, m.devices()...)
	if m.e.Hosts == nil {
		leftOut = c.Lab()
	}
	t, err := m.on.launch(ctx, launch{what: "tune", host: lab.SUT, part: "tune", config: c})
	if err != nil {
		return nil, err
	}
	m.tuner, m.tuned = t, v.Tune
	c.Check = true
	var r tune.Result
	err = until(ctx, "tune", func(ctx context.Context) error {
		return outcome(ctx, m.on, launch{what: "tune, check", host: lab.SUT, part: "tune", config: c}, &r)
	}, tuneTime, m.tuner.ended)
	if len(r.LeftOut) > 0 {
		leftOut = append(leftOut, strings.Join(r.LeftOut, ", ")+": the lab's host or its card has no such setting")
	}
	for i := range leftOut {
		leftOut[i] = "not tuned: " + leftOut[i]
	}
	return leftOut, err
}

// devices returns the SUT's devices in the measured network.
func (m *measurement) devices() []string {
	out := []string{m.on.names()[experiment.NameDevice]}
	if m.e.Hosts != nil {
		out = append(out, m.e.Hosts.SUT.More()...)
	}
	return out
}

// untune restores the previous settings. It returns an error if another program changed the settings
// meanwhile.
func (m *measurement) untune() error {
	if m.tuner == nil {
		return nil
	}
	t := m.tuner
	m.tuner, m.tuned = nil, nil
	if err := t.stop(); err != nil {
		return err
	}
	// The result has an error if the settings did not stay, or if a value could not be restored.
	return t.result(context.Background(), &tune.Result{})
}

// tuning returns the configuration of package tune for a variant.
func tuning(t *experiment.Tune, devices ...string) tune.Config {
	c := tune.Config{Settings: *t}
	if c.OfDevice() { // the agent must allow the devices, which a pod's node may not
		c.Devices = devices
	}
	return c
}

// tuneText describes a variant's tuning.
func tuneText(t *experiment.Tune) string {
	return "tuned by hand: " + strings.Join(tuning(t).Text(), "; ")
}

// serverText describes a variant's server settings.
func serverText(e *experiment.Experiment, v experiment.Variant) string {
	s := v.Server
	var out []string
	if s.Threads > 0 {
		out = append(out, fmt.Sprintf("%d threads", s.Threads))
	}
	if len(s.Arguments) > 0 {
		out = append(out, strings.Join(argumentsOf(e, v), " "))
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

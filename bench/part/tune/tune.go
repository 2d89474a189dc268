// SPDX-License-Identifier: Apache-2.0

// Package tune tunes a host for a server without lanes, as an experienced administrator would:
// sysctls of the network, the device's channels, rings, moderation, interrupts and transmit
// queues, the processors' frequency, and services that interfere. It keeps the settings for as
// long as it runs and restores the previous ones. It writes each previous value to a file before
// it changes the setting, so that another process can restore them after a kill.
//
// It refuses sysctls outside net, and leaves nothing out silently: a setting that the host lacks
// is an error, or with Config.Lenient a line of the result.
package tune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/lane/device"
)

// Settings are what Run sets. A zero field changes nothing.
type Settings = experiment.Tune

// Config is the configuration of Run, for the network namespace in which it runs.
type Config struct {
	Settings
	// Devices are the network devices of all settings that are not the host's.
	Devices []string `json:"devices,omitempty"`
	// Lenient leaves out what the device or the network namespace lacks. Result.LeftOut lists it.
	Lenient bool `json:"lenient,omitempty"`
	// Check makes Run only check whether all settings have these values.
	Check bool `json:"check,omitempty"`

	// Record is the file of the previous values; "": they are only in memory. An agent sets it, not
	// the experiment.
	Record string `json:"-"`
}

// Words of Config.Channels and Config.Interrupts.
const (
	Cores      = "cores"      // the cores of the processors of Interrupts
	Processors = "processors" // the processors of Interrupts
	Node       = "node"       // the processors of the device's NUMA node
	All        = "all"        // all processors
)

// Result is what Run has done.
type Result struct {
	// Before has the previous values by the names of settings.
	Before map[string]string `json:"before,omitempty"`
	// LeftOut are settings that the network namespace or the device lacks.
	LeftOut []string `json:"leftOut,omitempty"`
}

// Run makes all settings, waits for ctx to end and restores the previous values.
func Run(ctx context.Context, c Config) (Result, error) { return run(ctx, c, newHost()) }

func run(ctx context.Context, c Config, h *host) (r Result, err error) {
	defer func() { err = errors.Join(err, h.close()) }()
	if c.Check {
		return check(c, h)
	}
	if err := c.valid(); err != nil {
		return r, err
	}
	rec, err := openRecord(c.Record)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, rec.undo(h), rec.close()) }()
	// A tuning process that was killed has left its values.
	if err := rec.undo(h); err != nil {
		return r, fmt.Errorf("restore the settings of a killed process: %w", err)
	}
	r.Before = map[string]string{}
	for _, stage := range c.stages() {
		if err := c.make(h, rec, stage, &r); err != nil {
			return r, err
		}
	}
	h.awaitCarrier(c.resetting())
	<-ctx.Done()
	if r, err := c.compare(h); err != nil {
		return r, fmt.Errorf("another program has changed what was tuned: %w", err)
	}
	return r, nil
}

// make makes the settings of a stage.
func (c Config) make(h *host, rec *record, stage stage, r *Result) error {
	items, err := stage(h)
	if err != nil {
		return err
	}
	for _, i := range items {
		before, err := h.read(i)
		if errors.Is(err, errLacks) && c.Lenient {
			continue // check reports it
		}
		if err != nil {
			return err
		}
		if h.isAction(i) {
			if err := h.write(before, i); err != nil {
				return err
			}
			continue
		}
		if i.same(before) {
			continue
		}
		if o, ok := i.object.(device.Channels); ok {
			// Fewer channels drop the settings of queues, and more do not bring them back.
			if err := h.keepQueues(rec, o.Dev); err != nil {
				return err
			}
		}
		r.Before[i.String()] = before.value()
		if err := rec.push(before); err != nil {
			return err
		}
		if err := h.write(before, i); err != nil {
			return err
		}
	}
	return nil
}

// keepQueues records the processors of all interrupts of a device and the masks of its transmit
// queues. They are restored after the number of channels.
func (h *host) keepQueues(rec *record, dev string) error {
	queues, err := h.transmitQueues(dev)
	if err != nil {
		return err
	}
	for _, q := range queues {
		for _, i := range []item{{object: device.Affinity{Dev: dev, Queue: q}}, {File: h.xps(dev, q, xpsCPUs)},
			{File: h.xps(dev, q, xpsRxqs)}} {
			now, err := h.read(i)
			if errors.Is(err, errLacks) {
				continue
			}
			if err != nil {
				return err
			}
			if err := rec.push(now); err != nil {
				return err
			}
		}
	}
	return nil
}

// check checks all settings, and that the devices have their link. Its result lists what the host
// lacks.
func check(c Config, h *host) (r Result, err error) {
	if err := c.valid(); err != nil {
		return r, err
	}
	if r, err = c.compare(h); err != nil {
		return r, err
	}
	for _, dev := range c.resetting() {
		if h.carrier(dev) == "0" {
			return r, fmt.Errorf("%s: no carrier yet", dev)
		}
	}
	return r, nil
}

// compare compares all settings with their present values.
func (c Config) compare(h *host) (r Result, err error) {
	for _, stage := range c.stages() {
		items, err := stage(h)
		if err != nil {
			return r, err
		}
		for _, i := range items {
			now, err := h.read(i)
			if errors.Is(err, errLacks) && c.Lenient {
				if what := i.what(); !slices.Contains(r.LeftOut, what) {
					r.LeftOut = append(r.LeftOut, what)
				}
				continue
			}
			if err != nil {
				return r, err
			}
			if !i.same(now) && !h.isAction(i) {
				return r, fmt.Errorf("%s: want %s, have %s", i, i.value(), now.value())
			}
		}
	}
	return r, nil
}

// resetting returns the devices that lose their link for a moment when c changes them.
func (c Config) resetting() []string {
	if c.Channels == "" && c.RxRing == 0 && c.TxRing == 0 {
		return nil
	}
	return c.Devices
}

// resets reports whether a card that gets the setting loses its link for a moment.
func (i item) resets() bool {
	switch i.object.(type) {
	case device.Channels, device.Ring:
		return true
	}
	return false
}

// Restore restores the values in a record that a killed process has left, and removes the record.
// Without a record it does nothing.
func Restore(path string) error { return restore(path, newHost()) }

func restore(path string, h *host) error {
	rec, err := openExisting(path)
	if err != nil || rec == nil {
		return errors.Join(err, h.close())
	}
	return errors.Join(rec.undo(h), rec.close(), h.close())
}

// carrierTime is how long a device may take to have its link again. An agent waits longer for a
// process to end.
const carrierTime = 5 * time.Second

// awaitCarrier waits until devices that were up have their link again.
func (h *host) awaitCarrier(devices []string) {
	for deadline := time.Now().Add(carrierTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if !slices.ContainsFunc(devices, func(dev string) bool { return h.carrier(dev) == "0" }) {
			return
		}
	}
}

// Text describes the settings, one for each item.
func (c Config) Text() []string {
	var out []string
	say := func(given bool, format string, a ...any) {
		if given {
			out = append(out, fmt.Sprintf(format, a...))
		}
	}
	say(c.Symmetric, "each transmit queue sends what its receive queue received (xps_rxqs)")
	say(c.NAPIThreads, "kernel threads poll the device")
	say(c.Channels != "", "channels: %s", c.Channels)
	say(c.RxRing > 0, "receive ring %d", c.RxRing)
	say(c.TxRing > 0, "transmit ring %d", c.TxRing)
	for _, x := range []struct {
		name  string
		usecs *int
		adapt *bool
	}{{"receive", c.RxUsecs, c.RxAdapt}, {"transmit", c.TxUsecs, c.TxAdapt}} {
		if x.adapt != nil {
			say(true, "moderation of %s %s", x.name, map[bool]string{true: "adaptive", false: "fixed"}[*x.adapt])
		}
		if x.usecs != nil {
			say(true, "interrupts of %s after %d µs", x.name, *x.usecs)
		}
	}
	say(c.Interrupts != "", "interrupts on processors: %s", c.Interrupts)
	say(c.SendByProcessor, "each processor sends on the queue whose interrupt it has (xps_cpus)")
	say(c.Governor != "", "governor %s", c.Governor)
	say(c.Energy != "", "energy preference %s", c.Energy)
	say(len(c.Stop) > 0, "stopped: %s", strings.Join(c.Stop, ", "))
	for _, name := range slices.Sorted(maps.Keys(c.Sysctls)) {
		out = append(out, name+" "+c.Sysctls[name])
	}
	return out
}

// Lab makes c fit for a lab, and describes what it has left out. A lab changes nothing of the
// machine. Its card has the channels of the lab: an emulated card would lose packets of others.
func (c *Config) Lab() []string {
	machine := Config{Settings: Settings{Governor: c.Governor, Energy: c.Energy, Stop: c.Stop}}
	left := machine.Text()
	for i := range left {
		left[i] += ": the lab leaves the machine as it is"
	}
	if c.Channels != "" {
		left = append(left, "channels: "+c.Channels+": the lab's card has those of lab.queues")
	}
	c.Governor, c.Energy, c.Stop, c.Channels, c.Lenient = "", "", nil, "", true
	return left
}

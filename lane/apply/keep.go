// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/lane/device"
)

// When channels or the card's traffic classes change, drivers make new queues and lose settings
// of other programs on the old ones: interrupt affinity and moderation. If classes change, some
// drivers also change the number of channels and delete all steering rules (ice:
// ice_setup_tc_mqprio_qdisc, ice_remove_q_channels). This file saves and restores these settings.

// rebuilt returns the device whose queues the driver makes again for this write, "" if none. If
// classes is true, the driver may also delete steering rules and change the channels.
func rebuilt(old, next device.Object) (dev string, classes bool) {
	for _, o := range []device.Object{old, next} {
		switch o := o.(type) {
		case device.Channels:
			return o.Dev, false
		case device.Qdisc:
			if o.Type == "mqprio" && o.Mode != "" {
				return o.Dev, true
			}
		}
	}
	return "", false
}

// queueSettings are settings of other programs that a driver may lose.
type queueSettings struct {
	queues   []device.Object // Affinity and Coalesce objects
	channels device.Object   // nil for none
	rules    []ethtool.RawRule
}

// keep reads the settings that the driver may lose with a write to dev.
func (s *System) keep(dev string, classes bool) (k queueSettings, err error) {
	c, err := s.Read(device.Channels{Dev: dev})
	if err != nil {
		return k, err
	}
	channels, ok := c.(device.Channels)
	if !ok {
		return k, nil
	}
	var affinities, coalesces []device.Object
	for q := range max(channels.RX, channels.TX) + channels.Combined {
		affinities = append(affinities, device.Affinity{Dev: dev, Queue: q})
		coalesces = append(coalesces, device.Coalesce{Dev: dev, Queue: q})
	}
	for _, objects := range [][]device.Object{affinities, coalesces} {
		values, err := s.ReadMany(objects)
		if err != nil {
			return k, err
		}
		for _, v := range values {
			if v != nil {
				k.queues = append(k.queues, v)
			}
		}
	}
	if !classes {
		return k, nil
	}
	k.channels = channels
	k.rules, err = s.ethtool.RawRules(dev)
	if ethtool.NotSupported(err) {
		err = nil
	}
	return k, err
}

// restoreKept writes the settings that have changed back. It skips settings of queues that no
// longer exist.
func (s *System) restoreKept(dev string, k queueSettings) error {
	var errs []error
	put := func(o device.Object) {
		now, err := s.Read(o)
		if err == nil && now != nil && !device.Equal(now, o) {
			err = s.write(now, o)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the driver forgot %s, and it cannot be put back: %w", o.Key(), err))
		}
	}
	if k.channels != nil {
		put(k.channels)
	}
	for _, o := range k.queues {
		put(o)
	}
	for _, r := range k.rules {
		if err := s.ethtool.RestoreRule(dev, r); err != nil {
			errs = append(errs, fmt.Errorf("the driver deleted steering rule %d of %s, and it cannot be put back: %w",
				r.Location(), dev, err))
		}
	}
	return errors.Join(errs...)
}

// Write implements Kernel.
func (s *System) Write(old, next device.Object) error {
	dev, classes := rebuilt(old, next)
	if dev == "" {
		return s.write(old, next)
	}
	k, err := s.keep(dev, classes)
	if err != nil {
		return err
	}
	if err := s.write(old, next); err != nil {
		return errors.Join(err, s.restoreKept(dev, k))
	}
	if next != nil {
		k.channels = nil // the plan sets the number of channels
	}
	return s.restoreKept(dev, k)
}

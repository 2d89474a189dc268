// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// steering reports whether o is an RSS table or a rule.
func steering(o device.Object) bool {
	switch o.(type) {
	case device.RSSTable, device.Rule:
		return true
	}
	return false
}

// Read returns the present value of the object with o's identity, or nil if the device has no
// such object. It reads channels, coalesce, ring, feature, private flag, RSS table and
// rule objects.
func (c *Client) Read(o device.Object) (device.Object, error) {
	if steering(o) {
		return c.readSteering(o)
	}
	v, err := c.read(o)
	switch {
	case absent(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return v, nil
}

func (c *Client) read(o device.Object) (device.Object, error) {
	switch o := o.(type) {
	case device.Channels:
		v, _, err := c.Channels(o.Dev)
		return v, err
	case device.Ring:
		v, _, err := c.Ring(o.Dev)
		return v, err
	case device.Coalesce:
		if o.Queue >= 0 {
			v, err := c.QueueCoalesce(o.Dev, o.Queue)
			if errors.Is(err, unix.EINVAL) {
				return nil, nil // drivers answer EINVAL for a queue that does not exist
			}
			return v, err
		}
		v, _, err := c.Coalesce(o.Dev)
		return v, err
	case device.Feature:
		all, err := c.Features(o.Dev)
		if err != nil {
			return nil, err
		}
		f, ok := all[o.Name]
		if !ok {
			return nil, nil
		}
		o.On = f.On
		return o, nil
	case device.PrivFlag:
		all, err := c.PrivateFlags(o.Dev)
		if err != nil {
			return nil, err
		}
		on, ok := all[o.Name]
		if !ok {
			return nil, nil
		}
		o.On = on
		return o, nil
	}
	return nil, fmt.Errorf("object kind %q is not ethtool's", o.Kind())
}

// Write changes an object from old to next; nil means absent. Only RSS tables and rules can
// be created and removed. For other objects, Write compares next with the present value, not
// with old, so that a second Write is harmless.
func (c *Client) Write(old, next device.Object) error {
	o := cmp.Or(next, old)
	if steering(o) {
		return c.writeSteering(old, next)
	}
	if next == nil {
		return fmt.Errorf("%s: a device's %s cannot be removed", old.Key(), old.Kind())
	}
	switch o := next.(type) {
	case device.Channels:
		cur, _, err := c.Channels(o.Dev)
		if err != nil {
			return err
		}
		return c.SetChannels(cur, o)
	case device.Ring:
		cur, _, err := c.Ring(o.Dev)
		if err != nil {
			return err
		}
		return c.SetRing(cur, o)
	case device.Coalesce:
		if o.Queue >= 0 {
			return c.SetQueueCoalesce(o)
		}
		cur, _, err := c.Coalesce(o.Dev)
		if err != nil {
			return err
		}
		return c.SetCoalesce(cur, o)
	case device.Feature:
		return c.SetFeature(o)
	case device.PrivFlag:
		return c.SetPrivateFlag(o)
	}
	return fmt.Errorf("object kind %q is not ethtool's", next.Kind())
}

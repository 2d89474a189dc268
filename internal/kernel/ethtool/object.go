// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// Read returns the present value of the channels, coalesce, ring or feature
// with o's identity, nil if the device has none.
func (c *Client) Read(o device.Object) (device.Object, error) {
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
				return nil, nil // drivers say so of a queue that there is not
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
	}
	return nil, fmt.Errorf("object kind %q is not ethtool's", o.Kind())
}

// Write brings an object to new. These objects cannot be made or removed: a
// nil new is an error. What differs from the present value is sent, not what
// differs from old, so that writing twice is harmless.
func (c *Client) Write(old, new device.Object) error {
	if new == nil {
		return fmt.Errorf("%s: a device's %s cannot be removed", old.Key(), old.Kind())
	}
	switch o := new.(type) {
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
	}
	return fmt.Errorf("object kind %q is not ethtool's", new.Kind())
}

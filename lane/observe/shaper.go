// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/shaper"
	"github.com/niclane/niclane/lane/device"
)

// shapers reads the card's shapers of its transmit queues. It also sets which rates the card
// supports.
func (o *observer) shapers(opts Options) error {
	c := shaper.Open()
	defer c.Close()
	for i := range o.state.Devices {
		d := &o.state.Devices[i]
		var err error
		if d.Shapers, err = c.Shapers(d.Name); err != nil && !tolerable(err) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if opts.NoProbes {
			continue
		}
		caps, err := c.Caps(d.Name)
		for capability, has := range map[device.Capability]bool{device.CapQueueShaper: caps.Max,
			device.CapQueueShaperMin: caps.Min} {
			switch {
			case err == nil && has:
				d.Capabilities[capability] = yes("cap-get of its queues")
			case err == nil:
				d.Capabilities[capability] = no("cap-get of its queues does not name it")
			case errors.Is(err, fs.ErrNotExist):
				d.Capabilities[capability] = no("no netlink family %s", shaper.Family)
			default:
				d.Capabilities[capability] = answer(err, "", unix.EOPNOTSUPP)
			}
		}
	}
	return nil
}

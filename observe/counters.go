// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/tc"
)

// Counters reads what a device counts now.
func Counters(dev string) (device.Counters, error) {
	c := device.Counters{Device: dev}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return c, err
	}
	c.Mono = now.Nano()
	t, err := tc.Open()
	if err != nil {
		return c, err
	}
	defer t.Close()
	c.Classes, err = t.ClassCounters(dev)
	return c, err
}

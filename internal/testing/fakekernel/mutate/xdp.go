// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"slices"

	"github.com/niclane/niclane/lane/device"
)

func hangsOnXDP(o, on device.Object) bool {
	switch on := on.(type) {
	case device.XDP:
		switch o := o.(type) {
		case device.CPUQueue:
			return o.Dev == on.Dev
		case device.CPULane:
			return o.Dev == on.Dev
		case device.XDPEntry:
			return o.Dev == on.Dev
		case device.Tunnels:
			return o.Filter == on.Key()
		}
	case device.CPUQueue:
		l, ok := o.(device.CPULane)
		return ok && l.Dev == on.Dev && slices.Contains(l.CPUs, on.CPU)
	case device.CPULane:
		e, ok := o.(device.XDPEntry)
		return ok && e.Dev == on.Dev && e.Lane == on.Lane
	}
	return false
}

func xdpVariants(o device.Object) map[string]device.Object {
	switch o := o.(type) {
	case device.XDP:
		mode := o
		mode.Mode = map[string]string{"native": "generic", "generic": "native"}[o.Mode]
		return map[string]device.Object{"mode": mode}
	case device.CPUQueue:
		o.Size /= 2
		return map[string]device.Object{"size": o}
	case device.CPUThread:
		o.Policy, o.Priority, o.Nice = "fifo", o.Priority+1, 0
		return map[string]device.Object{"priority": o}
	case device.CPULane:
		o.CPUs = append(slices.Clone(o.CPUs), o.CPUs[0])
		return map[string]device.Object{"processors": o}
	case device.XDPEntry:
		o.Lane++
		return map[string]device.Object{"lane": o}
	}
	return nil
}

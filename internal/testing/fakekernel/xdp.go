// SPDX-License-Identifier: Apache-2.0

package fakekernel

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// removableXDP returns an error if steering still leads to the object. The real kernel would allow
// the removal, but a plan must not have this order.
func (k *Kernel) removableXDP(o device.Object) error {
	for _, x := range k.objs {
		switch o := o.(type) {
		case device.CPULane:
			if e, ok := x.(device.XDPEntry); ok && e.Dev == o.Dev && e.Lane == o.Lane {
				return refuse(o, unix.EBUSY, "entry %s leads to it", e.Match)
			}
		case device.CPUQueue:
			if l, ok := x.(device.CPULane); ok && l.Dev == o.Dev && slices.Contains(l.CPUs, o.CPU) {
				return refuse(o, unix.EBUSY, "lane %d leads to it", l.Lane)
			}
		}
	}
	return nil
}

func (k *Kernel) validXDP(old, next device.Object) error {
	if x, ok := next.(device.XDP); ok {
		if old != nil {
			return refuse(x, unix.EBUSY, "XDP program already attached")
		}
		if x.Mode != "native" && x.Mode != "generic" {
			return refuse(x, unix.EINVAL, "mode %q", x.Mode)
		}
		return nil
	}
	program, ok := k.objs["xdp/"+device.DeviceOf(next)].(device.XDP)
	if !ok || !strings.HasPrefix(program.Program, "niclane_") {
		return refuse(next, unix.ENOENT, "no XDP program of niclane's")
	}
	switch o := next.(type) {
	case device.CPUQueue:
		if o.Size < 1 || o.Size > 16384 || !slices.Contains(k.st.OnlineCPUs(), o.CPU) {
			return refuse(o, unix.EINVAL, "size, or CPU %d is offline", o.CPU)
		}
	case device.CPUThread:
		if o.Policy == "fifo" && (o.Priority < 1 || o.Priority > 99) {
			return refuse(o, unix.EINVAL, "priority")
		}
	case device.CPULane:
		if o.Lane < 1 || o.Lane > 63 || len(o.CPUs) == 0 {
			return refuse(o, unix.EINVAL, "lane or CPUs")
		}
		for _, cpu := range o.CPUs {
			if _, ok := k.objs[(device.CPUQueue{Dev: o.Dev, CPU: cpu}).Key()]; !ok {
				return refuse(o, unix.ENOENT, "no queue to CPU %d", cpu)
			}
		}
	case device.XDPEntry:
		if _, ok := k.objs[fmt.Sprintf("cpulane/%s/%d", o.Dev, o.Lane)]; !ok {
			return refuse(o, unix.ENOENT, "no lane %d", o.Lane)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/netprio"
	"github.com/niclane/niclane/lane/device"
)

// netPrio reads the priorities that the net_prio controller of cgroup v1 gives to control groups,
// for each device. It also sets whether net_prio works on the device.
func (o *observer) netPrio(opts Options) error {
	mount := o.state.Cgroups.V1["net_prio"]
	if mount == "" {
		return nil // probeCgroups says why
	}
	c, err := netprio.Open(mount)
	if err != nil {
		return fmt.Errorf("net_prio: %w", err)
	}
	defer c.Close()
	g := &o.state.Cgroups
	for _, group := range opts.Cgroups {
		if g.PrioGroups == nil {
			g.PrioGroups = map[string]bool{}
		}
		if g.PrioGroups[group], err = c.Has(group); err != nil {
			return err
		}
	}
	for i := range o.state.Devices {
		d := &o.state.Devices[i]
		reached := c.Reaches(d.Name)
		if !opts.NoProbes {
			d.Capabilities[device.CapNetPrio] = answer(reached, "version 1 at "+mount+", which knows the device",
				unix.EOPNOTSUPP, unix.ENODEV)
		}
		if reached != nil {
			continue
		}
		for _, group := range opts.Cgroups {
			v, err := c.Read(device.CgroupPriority{Cgroup: group, Dev: d.Name})
			if err != nil {
				return err
			}
			if v != nil {
				g.Priorities = append(g.Priorities, v.(device.CgroupPriority))
			}
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// names has the interface index of each observed device, by its name. The index stays when a device
// is renamed. The zero value is empty.
type names struct{ index map[string]int }

// An interestSource has what the method interest needs to know about the lanes of one file.
type interestSource struct {
	state   *device.State
	devices []string
	known   bool // true if state has only these devices and those on which they depend
	groups  []string
	owned   []plan.Record
}

// interest returns which notifications niclane must ask the kernel for.
func (n *names) interest(of interestSource) notify.Interest {
	if n.index == nil {
		n.index = map[string]int{}
	}
	in := notify.Interest{Devices: slices.Clone(of.devices)}
	files := map[string]bool{noIOUring: true}
	for i := range of.state.Devices {
		d := &of.state.Devices[i]
		if !of.known && !slices.Contains(of.devices, d.Name) {
			continue
		}
		n.index[d.Name] = d.Index
		in.Indexes = append(in.Indexes, d.Index)
		for _, napi := range d.NAPIs {
			if napi.PID != 0 {
				in.PIDs = append(in.PIDs, napi.PID)
			}
		}
		for _, p := range d.Pollers {
			in.PIDs = append(in.PIDs, p.PID)
		}
		for name := range of.state.Files {
			if strings.HasPrefix(name, "/sys/class/net/"+d.Name+"/") {
				files[name] = true
			}
		}
		for _, i := range d.IRQs {
			files[fmt.Sprintf("/proc/irq/%d/smp_affinity_list", i.Number)] = true
			files[fmt.Sprintf("/proc/irq/%d/smp_affinity", i.Number)] = true // a second file for the same setting
		}
	}
	for _, dev := range of.devices {
		if index := n.index[dev]; index != 0 && !slices.Contains(in.Indexes, index) {
			in.Indexes = append(in.Indexes, index) // dev may have been renamed
		}
	}
	for _, r := range of.owned {
		if f, ok := r.Last.(device.File); ok {
			files[f.Path] = true
		}
	}
	in.Files = slices.Sorted(maps.Keys(files))
	for _, g := range of.groups {
		mounts := slices.Collect(maps.Values(of.state.Cgroups.V1))
		if of.state.Cgroups.V2 != "" {
			mounts = append(mounts, of.state.Cgroups.V2)
		}
		for _, mount := range mounts {
			in.Births = append(in.Births, path.Join(mount, g))
		}
	}
	return in
}

// waits returns the devices on which repairs are impossible now, with the reasons. displaced is a
// result of engine.Displaced.
func waits(devices []string, st *device.State, displaced map[string]string) map[string]string {
	var out map[string]string
	for _, dev := range devices {
		why := wait(st.Device(dev))
		if where := displaced[dev]; where != "" {
			why = where + ", and its lanes went with it: they are not kept until it has its name again"
		}
		if why != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[dev] = why
		}
	}
	return out
}

func wait(d *device.Device) string {
	switch {
	case d == nil:
		return "there is no device of that name in this network namespace: its lanes are made as soon as it exists"
	case !d.Up:
		return "it is down: its lanes are made as soon as it is up"
	case !d.Carrier:
		return "it has no carrier: its lanes are made as soon as it has one"
	}
	return ""
}

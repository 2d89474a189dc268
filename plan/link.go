// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/niclane/niclane/device"
)

// headless says why niclane's programs cannot read a device's packets, "" if they
// can: their flow is found behind an Ethernet header (internal/bpf/c/flow.h: parse).
func headless(d *device.Device) string {
	if d.LinkType == "" {
		return ""
	}
	return fmt.Sprintf("packets of link type %s have no Ethernet header, behind which it reads flows", d.LinkType)
}

// tcx tests whether the classifier can be at TCX egress.
func tcx(st *device.State, d *device.Device) (bool, string) {
	if why := headless(d); why != "" {
		return false, why
	}
	return needs("by flow, one map lookup per pattern, at TCX egress, before others' programs and filters", device.CapTCX, device.CapClsBPF)(st, d)
}

// noteSpeed says where the link's rate is a driver's invention, of which lanes
// would have shares. A VLAN has its lower device's, a bond that of its slaves.
func (f *fit) noteSpeed(lanes []*placed) {
	if f.in.Group.LinkRate > 0 || f.dev.Emulated || !shaped(lanes) {
		return
	}
	for _, d := range f.st.Devices {
		if d.Name != f.dev.Name && d.Name != f.dev.Lower && d.Master != f.dev.Name {
			continue
		}
		if q, ok := device.FindQuirk(device.QuirkSpeedInvented, d.Driver, f.st.Kernel.Release); ok {
			f.notef("its %s are no link's: %s makes them up (%s): give link-rate, of which per cents are and below which queues build",
				rateText(f.link), d.Driver, q.Source)
			return
		}
	}
}

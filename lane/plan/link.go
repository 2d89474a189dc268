// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// headless says why niclane's programs cannot read a device's packets, "" if they
// can: their flow is found behind an Ethernet header (internal/kernel/bpf/c/include/niclane/packet.h).
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
	return needs("by flow, one map lookup per pattern, at TCX egress, before others' programs and filters",
		device.CapTCX, device.CapClsBPF)(st, d)
}

// invented gives the quirk by which the link's rate is a driver's invention: the
// device's, or, as a VLAN has its lower device's rate and a bond the sum of its
// slaves', one of theirs.
func (f *fit) invented() (device.Quirk, bool) {
	if f.in.Group.LinkRate > 0 || f.dev.Emulated {
		return device.Quirk{}, false
	}
	for _, d := range f.st.Devices {
		if d.Name != f.dev.Name && d.Name != f.dev.Lower && d.Master != f.dev.Name {
			continue
		}
		if q, ok := device.FindQuirk(device.QuirkSpeedInvented, d.Driver, f.st.Kernel.Release); ok {
			return q, true
		}
	}
	return device.Quirk{}, false
}

// noteSpeed says where lanes have shares of an invention.
func (f *fit) noteSpeed(lanes []*deviceLane) {
	if q, ok := f.invented(); ok && shaped(lanes) {
		f.notef("the driver %s makes up the link rate of %s (%s): give link-rate, which percentages refer to and "+
			"below which queues build",
			q.Driver, device.RateText(f.link), q.Source)
	}
}

// hint ends what is said of too much for the link, where nobody knows that.
func (f *fit) hint() string {
	if q, ok := f.invented(); ok {
		return fmt.Sprintf("; %s makes that up: give link-rate", q.Driver)
	}
	return ""
}

// noteUpper says how a lane gets queues of the cards below a bond, a team, a
// bridge or a VLAN: on the device itself it is made in software alone.
func (f *fit) noteUpper() {
	below, vlan, has := f.dev, "", "it is"
	if f.dev.VLAN != 0 {
		if below = f.st.Device(f.dev.Lower); below == nil {
			return
		}
		vlan, has = fmt.Sprintf(" and vlans: %d", f.dev.VLAN), "it is a VLAN of "+below.Name+","
	}
	var ports []string
	for _, d := range f.st.Devices {
		if d.Master == below.Name {
			ports = append(ports, d.Name)
		}
	}
	list := strings.Join(ports, ", ")
	switch {
	case below.Type == "bond":
		f.notef("%s a bond: write bond: %s%s for queues of its slaves (%s)", has, below.Name, vlan, list)
	case len(ports) > 0: // a team's, a bridge's
		f.notef("%s a %s: write dev: [%s]%s for queues of its ports", has, below.Type, list, vlan)
	case vlan != "" && below.VLAN == 0:
		f.notef("it is a VLAN: write dev: %s%s for queues of the device below", below.Name, vlan)
	}
}

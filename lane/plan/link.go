// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// headless returns the reason why niclane's programs cannot read a device's packets, "" if they
// can. The programs find the flow only behind an Ethernet header
// (internal/kernel/bpf/c/include/niclane/packet.h).
func headless(d *device.Device) string {
	if d.LinkType == "" {
		return ""
	}
	return fmt.Sprintf("packets of link type %s have no Ethernet header, and niclane's program reads flows only "+
		"behind one", d.LinkType)
}

// tcx tests whether niclane's classifier can be attached at TCX egress.
func tcx(st *device.State, d *device.Device) (bool, string) {
	if why := headless(d); why != "" {
		return false, why
	}
	return needs("by flow, one map lookup per pattern, at TCX egress, before others' programs and filters",
		device.CapTCX, device.CapClsBPF)(st, d)
}

// invented returns the quirk of a driver that makes up the link's rate. It checks the drivers of
// the device, of the device under a VLAN, and of a bond's slaves.
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

// noteSpeed adds a warning if the driver made up the link's rate and the lanes share that rate.
func (f *fit) noteSpeed(lanes []*deviceLane) {
	if q, ok := f.invented(); ok && shaped(lanes) {
		f.notef("the driver %s makes up the link rate of %s (%s): give link-rate; percentages and "+
			"shaping are based on it",
			q.Driver, device.RateText(f.link), q.Source)
	}
}

// hint returns text for the end of an error message about a rate above the link's rate. It says
// that the driver made up the link's rate; it is "" if the driver did not.
func (f *fit) hint() string {
	if q, ok := f.invented(); ok {
		return fmt.Sprintf("; the driver %s makes that rate up: give link-rate", q.Driver)
	}
	return ""
}

// noteUpper adds a note for a bond, a team, a bridge or a VLAN: how to write the file so that
// lanes get queues of the cards under it. On the device itself, lanes are made only in software. A
// bond is refused unless the file forces a queue set: bond: names the lanes' cards.
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
	case below.Type == "bond" && f.in.Group.Force[string(device.PartQueueSet)] == "":
		f.failf("globals.dev", "%s: %s a bond, and only its slaves (%s) have queues to reserve: write bond: %s%s; for "+
			"lanes on the bond itself, in software alone, force: {%s: %s}", f.dev.Name, has, list, below.Name, vlan,
			device.PartQueueSet, ByShared)
	case below.Type == "bond":
		f.notef("%s a bond: write bond: %s%s for queues of its slaves (%s)", has, below.Name, vlan, list)
	case len(ports) > 0: // a team or a bridge
		f.notef("%s a %s: write dev: [%s]%s for queues of its ports", has, below.Type, list, vlan)
	case vlan != "" && below.VLAN == 0:
		f.notef("it is a VLAN: write dev: %s%s for queues of the device below", below.Name, vlan)
	}
}

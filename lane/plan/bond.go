// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A group holds the link rates of the devices that the lanes span. If they are a bond's slaves,
// they share the lanes' rates in proportion to their links.
type group struct {
	// link is the rate of each device's link in bit/s, 0 if unknown.
	link map[string]uint64
	// all is the sum of the links of a bond's slaves. used is the sum for the slaves that the bond
	// sends on. Both are 0 if each device has the lanes' full rates: without a bond, or in a bond
	// mode in which one slave, or each slave, carries all traffic.
	all, used uint64
	// sharing has the names of the slaves that used counts.
	sharing []string
}

// groupOf returns the link rates of the named devices, with their sums if they are slaves of a
// bond.
func groupOf(in *intent.Intent, st *device.State, names []string) group {
	g := group{link: map[string]uint64{}}
	var fastest uint64
	for _, name := range names {
		g.link[name] = linkOf(in, st.Device(name))
		fastest = max(fastest, g.link[name])
	}
	for _, name := range names {
		// A card reports no speed while its link is down. The lanes on the other devices must not fail
		// because of that.
		if g.link[name] == 0 && st.Device(name).Idle {
			g.link[name] = fastest
		}
	}
	bond := st.Device(in.Group.Bond)
	if bond == nil || bond.BondMode == device.BondActiveBackup || bond.BondMode == device.BondBroadcast {
		return g
	}
	for _, name := range names {
		g.all += g.link[name]
		if !st.Device(name).Idle {
			g.used += g.link[name]
			g.sharing = append(g.sharing, name)
		}
	}
	if g.used == 0 {
		g.used, g.sharing = g.all, slices.Clone(names)
	}
	slices.Sort(g.sharing)
	return g
}

// linkOf returns the rate of a device's link in bit/s, 0 if unknown.
func linkOf(in *intent.Intent, d *device.Device) uint64 {
	if in.Group.LinkRate > 0 {
		return in.Group.LinkRate
	}
	return d.Speed
}

// share returns the sum of the links that share the lanes' rates with d. For a slave that the
// bond does not send on, it is the sum of all slaves: such a slave has rates too, for the time
// when the bond sends on it again.
func (g group) share(d *device.Device) uint64 {
	if d.Idle {
		return g.all
	}
	return g.used
}

// noteIdle adds notes about a slave that the bond does not send on: which slaves have its part of
// the rates, and which link rate it was planned with.
func (f *fit) noteIdle() {
	if f.in.Group.Bond == "" || !f.dev.Idle {
		return
	}
	if f.links > 0 && inBits(f.in) {
		f.notef("%s does not send on it now: the slaves that the bond sends on have its part of the lanes' rates",
			f.in.Group.Bond)
	}
	if f.link != linkOf(f.in, f.dev) {
		f.notef("its link is down and reports no speed: planned with %s, the speed of the fastest slave",
			device.RateText(f.link))
	}
}

// inBits reports whether a lane has a rate in bit/s. The slaves of a bond share such rates, but
// not percentages.
func inBits(in *intent.Intent) bool {
	absolute := func(l intent.Lane) bool {
		return l.Bandwidth.Guarantee.BitsPerSecond > 0 || l.Bandwidth.Ceiling.BitsPerSecond > 0
	}
	return absolute(in.Default) || slices.ContainsFunc(in.Lanes, absolute)
}

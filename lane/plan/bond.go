// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A group is the links of the devices that the lanes span, by which their rates
// are shared out.
type group struct {
	// link is that of each device in bit/s, 0 if nobody says it.
	link map[string]uint64
	// all is the sum of a bond's slaves, used that of those by which it sends.
	// Both are 0 where each device has the lanes' rates whole: of devices that
	// are no bond's, and where one slave carries everything, or each does.
	all, used uint64
	// sharing are the slaves of used.
	sharing []string
}

// groupOf measures the named devices.
func groupOf(in *intent.Intent, st *device.State, names []string) group {
	g := group{link: map[string]uint64{}}
	var fastest uint64
	for _, name := range names {
		g.link[name] = linkOf(in, st.Device(name))
		fastest = max(fastest, g.link[name])
	}
	for _, name := range names {
		// A card does not say its speed while its link is down. It is no reason
		// to refuse the lanes to the others.
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

// linkOf is the rate of a device's link, 0 if nobody says it.
func linkOf(in *intent.Intent, d *device.Device) uint64 {
	if in.Group.LinkRate > 0 {
		return in.Group.LinkRate
	}
	return d.Speed
}

// share is the sum of the links that share the lanes' rates with a device's own. A
// slave by which the bond sends nothing keeps what it had as one of all.
func (g group) share(d *device.Device) uint64 {
	if d.Idle {
		return g.all
	}
	return g.used
}

// noteIdle says what comes of a slave by which the bond sends nothing.
func (f *fit) noteIdle() {
	if f.in.Group.Bond == "" || !f.dev.Idle {
		return
	}
	if f.links > 0 && inBits(f.in) {
		f.notef("%s sends nothing by it now: the slaves by which it does have its part of the lanes' rates",
			f.in.Group.Bond)
	}
	if f.link != linkOf(f.in, f.dev) {
		f.notef("its link is down and says no speed: planned with %s, as of the fastest slave", device.RateText(f.link))
	}
}

// inBits reports whether a lane has a rate that a bond's slaves can share.
func inBits(in *intent.Intent) bool {
	absolute := func(l intent.Lane) bool {
		return l.Bandwidth.Guarantee.BitsPerSecond > 0 || l.Bandwidth.Ceiling.BitsPerSecond > 0
	}
	return absolute(in.Default) || slices.ContainsFunc(in.Lanes, absolute)
}

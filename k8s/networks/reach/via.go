// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// above returns the indexes of the devices, and of all links on top of them.
func above(links []netlink.Link, devices ...string) map[int]bool {
	on := map[int]bool{}
	for _, l := range links {
		for _, d := range devices {
			if l.Attrs().Name == d {
				on[l.Attrs().Index] = true
			}
		}
	}
	for range links { // each pass finds one more level of devices
		for _, l := range links {
			a := l.Attrs()
			if on[a.Index] && a.MasterIndex != 0 {
				on[a.MasterIndex] = true
			}
			if l.Type() == "vlan" && on[a.ParentIndex] {
				on[a.Index] = true
			}
		}
	}
	return on
}

// Through returns a function that reports whether packets to an address leave by one of the
// devices, or by a device on top of them: their bond, a VLAN, a bridge. The function remembers its
// results, so it is valid only as long as links and routes do not change.
func Through(devices []string) (func(netip.Addr) bool, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("links of the node: %w", err)
	}
	on := above(links, devices...)
	known := map[netip.Addr]bool{}
	return func(addr netip.Addr) bool {
		if yes, ok := known[addr]; ok {
			return yes
		}
		routes, err := netlink.RouteGet(addr.AsSlice())
		known[addr] = err == nil && len(routes) > 0 && on[routes[0].LinkIndex]
		return known[addr]
	}, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package lifeline finds what a user may cut off by changing a device: the default route, and
// the connection over which the running command was started. It reads the network namespace of
// the calling thread and changes nothing.
package lifeline

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// On lists what a change of a device, or of a device stacked on it, could cut off. Each entry is
// part of a sentence: "the default route", "this login, from 192.0.2.7". nil means that nothing
// is known to depend on the device.
func On(dev string) (carried []string) {
	over, err := above(dev)
	if err != nil {
		return []string{fmt.Sprintf("perhaps this login, which could not be checked (%v)", err)}
	}
	if yes, err := defaultRoute(over); err != nil {
		carried = append(carried, fmt.Sprintf("perhaps the default route, which could not be read (%v)", err))
	} else if yes {
		carried = append(carried, "the default route")
	}
	for _, s := range sessions(os.Getpid()) {
		if leaves(s.peer, over) {
			carried = append(carried, s.String())
		}
	}
	return carried
}

// Sentence returns a sentence with what each device carries, or "" if none carries anything.
func Sentence(devices []string) string {
	var all []string
	for _, dev := range devices {
		if carried := On(dev); len(carried) > 0 {
			all = append(all, dev+" carries "+strings.Join(carried, ", and "))
		}
	}
	return strings.Join(all, "; ")
}

// above returns the indices of a device and of the devices stacked on it: VLANs, its bond or
// bridge, and those on top of them. If no device has that name, it returns none.
func above(dev string) (map[int]bool, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	return stacked(dev, links), nil
}

func stacked(dev string, links []netlink.Link) map[int]bool {
	over := map[int]bool{}
	for _, l := range links {
		if l.Attrs().Name == dev {
			over[l.Attrs().Index] = true
		}
	}
	for grown := len(over) > 0; grown; {
		grown = false
		add := func(index int) {
			if index != 0 && !over[index] {
				over[index], grown = true, true
			}
		}
		for _, l := range links {
			at := l.Attrs()
			if over[at.Index] {
				add(at.MasterIndex)
			}
			// A veth's parent index is its peer's. NetNsID >= 0: the parent is in another
			// namespace, and its index belongs to that namespace.
			if _, veth := l.(*netlink.Veth); !veth && at.NetNsID < 0 && over[at.ParentIndex] {
				add(at.Index)
			}
		}
	}
	return over
}

// defaultBits is the longest prefix length that counts as a default route. Some hosts have two
// halves (0.0.0.0/1 and 128.0.0.0/1) or 2000::/3 in place of one default route.
const defaultBits = 3

// defaultRoute reports whether a default route, in any routing table, uses one of the links.
func defaultRoute(over map[int]bool) (found bool, err error) {
	err = netlink.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
		netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			if r.Type != unix.RTN_UNICAST {
				return true
			}
			if r.Dst != nil {
				if ones, _ := r.Dst.Mask.Size(); ones > defaultBits {
					return true
				}
			}
			found = over[r.LinkIndex]
			for _, h := range r.MultiPath {
				found = found || over[h.LinkIndex]
			}
			return !found
		})
	if found || errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil
	}
	return found, err
}

// leaves reports whether packets to an address leave by one of the links.
func leaves(to netip.Addr, over map[int]bool) bool {
	if zone := to.Zone(); zone != "" {
		link, err := net.InterfaceByName(zone)
		return err == nil && over[link.Index]
	}
	routes, err := netlink.RouteGet(net.IP(to.AsSlice()))
	if err != nil { // this namespace has no route to it
		return false
	}
	for _, r := range routes {
		if r.Type == unix.RTN_UNICAST && over[r.LinkIndex] {
			return true
		}
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// addrSet are addresses of this host.
type addrSet map[netip.Addr]bool

// has reports whether an address is this host's own.
func (s addrSet) has(a netip.Addr) bool { return a.IsLoopback() || s[a.WithZone("")] }

// localAddrs returns the addresses of the network namespace.
func localAddrs() (addrSet, error) {
	all, err := addresses()
	set := addrSet{}
	for _, a := range all {
		set[a.addr] = true
	}
	return set, err
}

type linkAddr struct {
	addr netip.Addr
	link int
}

func addresses() ([]linkAddr, error) {
	list, err := again(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	var out []linkAddr
	for _, a := range list {
		if a.IPNet == nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			out = append(out, linkAddr{addr.Unmap(), a.LinkIndex})
		}
	}
	return out, nil
}

// reach finds the devices by which each endpoint is reached: those that have its address, or for an
// address of all, or one of loopback that is not 127/8 (as for anycast), each with an address that
// other hosts can use. Stacked devices lead to those below them.
func (inv *Inventory) reach() error {
	links, err := again(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	addrs, err := addresses()
	if err != nil {
		return err
	}
	r := router{byIndex: map[int]netlink.Link{}, links: links}
	for _, l := range links {
		r.byIndex[l.Attrs().Index] = l
	}
	on := map[netip.Addr]int{}
	all := map[string]Path{}
	for _, a := range addrs {
		l := r.byIndex[a.link]
		if l == nil || a.addr.IsLoopback() {
			continue
		}
		if l.Attrs().Name == "lo" {
			continue // its packets arrive at any device
		}
		on[a.addr] = a.link
		if a.addr.IsGlobalUnicast() {
			for _, p := range r.below(l, nil, 0) {
				all[p.Device] = longer(all[p.Device], p)
			}
		}
	}
	used := map[string]Path{}
	for i := range inv.Services {
		for j := range inv.Services[i].Endpoints {
			e := &inv.Services[i].Endpoints[j]
			e.Ephemeral = ephemeral(e.Port)
			mine := map[string]Path{}
			for _, a := range e.Addrs {
				switch index, known := on[a]; {
				case a.IsLoopback():
				case known:
					for _, p := range r.below(r.byIndex[index], nil, 0) {
						mine[p.Device] = longer(mine[p.Device], p)
					}
				default:
					for name, p := range all {
						mine[name] = longer(mine[name], p)
					}
				}
			}
			for name, p := range mine {
				e.Devices = append(e.Devices, name)
				used[name] = longer(used[name], p)
			}
			slices.Sort(e.Devices)
		}
	}
	// The devices that no listener uses now count too: a service that is not there yet may.
	for name, p := range all {
		used[name] = longer(used[name], p)
	}
	for _, p := range used {
		inv.Paths = append(inv.Paths, p)
	}
	slices.SortFunc(inv.Paths, func(a, b Path) int { return cmp.Compare(a.Device, b.Device) })
	return nil
}

// longer returns the path with more devices above, to name the bond and the VLAN too.
func longer(a, b Path) Path {
	if len(b.Via) > len(a.Via) || a.Device == "" {
		return b
	}
	return a
}

type router struct {
	byIndex map[int]netlink.Link
	links   []netlink.Link
}

// deepest is the largest number of stacked devices (MAX_NEST_DEV, include/linux/netdevice.h).
const deepest = 8

// below returns the devices at which packets for addresses of a link arrive. via are the devices
// above the link, from above.
func (r *router) below(l netlink.Link, via []string, depth int) []Path {
	at := l.Attrs()
	over := append([]string{at.Name}, via...)
	if depth > deepest {
		return nil
	}
	switch l.Type() {
	case "vlan", "macvlan", "macvtap", "ipvlan":
		if parent := r.byIndex[at.ParentIndex]; parent != nil && at.NetNsID < 0 {
			return r.below(parent, over, depth+1)
		}
	case "bond", "team", "bridge":
		var out []Path
		for _, port := range r.links {
			kind := port.Type()
			if port.Attrs().MasterIndex != at.Index {
				continue
			}
			// A bridge's other ports lead to containers and machines of this host.
			if l.Type() == "bridge" && (kind == "veth" || kind == "tuntap" || kind == "tun") {
				continue
			}
			for _, p := range r.below(port, over, depth+1) {
				if l.Type() == "bond" {
					p.Bond = at.Name
				}
				out = append(out, p)
			}
		}
		return out
	}
	if at.Name == "lo" {
		return nil
	}
	return []Path{{Device: at.Name, Kind: l.Type(), Via: via}}
}

// ephemeral reports whether the kernel gives a port to sockets that ask for none. If it cannot find
// out, it takes the kernel's default.
func ephemeral(port uint16) bool {
	first, last := 32768, 60999
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		f := strings.Fields(string(b))
		if len(f) == 2 {
			a, err1 := strconv.Atoi(f[0])
			b, err2 := strconv.Atoi(f[1])
			if errors.Join(err1, err2) == nil {
				first, last = a, b
			}
		}
	}
	return int(port) >= first && int(port) <= last
}

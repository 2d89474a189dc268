// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Path is the route from this host to an address.
type Path struct {
	// Source is the address from which the kernel sends by default.
	Source netip.Addr
	// Sources are this host's addresses from which packets take this path, without loopback and
	// link-local ones.
	Sources []netip.Addr
	// Device is the device in the route.
	Device string
	// vlans has each device that the packets pass, from Device down to the hardware, by device
	// index. The value is the VLAN ID of the packets on that device, 0 for none.
	vlans map[int]int
}

// ErrAddress means that an address is not another host's.
var ErrAddress = errors.New("not the address of another host")

// Find looks up the path to an address in the network namespace of the calling thread.
func Find(addr netip.Addr) (Path, error) {
	var p Path
	route, err := get(addr, netip.Addr{})
	if err != nil {
		return p, fmt.Errorf("route to %s: %w", addr, err)
	}
	if what, bad := map[int]string{
		unix.RTN_LOCAL: "this host's own", unix.RTN_BROADCAST: "a broadcast address",
		unix.RTN_MULTICAST: "a multicast address", unix.RTN_ANYCAST: "an anycast address",
	}[route.Type]; bad {
		return p, fmt.Errorf("%s is %s: %w", addr, what, ErrAddress)
	}
	link, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return p, fmt.Errorf("route to %s: %w", addr, err)
	}
	p.Device = link.Attrs().Name
	p.Source, _ = netip.AddrFromSlice(route.Src)
	p.Source = p.Source.Unmap()
	if p.vlans, err = below(link, netlink.LinkByIndex); err != nil {
		return p, fmt.Errorf("devices below %s: %w", p.Device, err)
	}
	p.Sources, err = sources(addr, route.LinkIndex)
	return p, err
}

func get(addr, from netip.Addr) (netlink.Route, error) {
	opt := &netlink.RouteGetOptions{}
	if from.IsValid() {
		opt.SrcAddr = net.IP(from.AsSlice())
	}
	routes, err := netlink.RouteGetWithOptions(net.IP(addr.AsSlice()), opt)
	if err != nil {
		return netlink.Route{}, err
	}
	if len(routes) == 0 {
		return netlink.Route{}, unix.ENETUNREACH
	}
	return routes[0], nil
}

// below returns the devices that packets pass from a link down to the hardware, by index. The
// value is the VLAN ID of the packets on that device, 0 for none.
func below(link netlink.Link, byIndex func(int) (netlink.Link, error)) (map[int]int, error) {
	vlans, vlan := map[int]int{}, 0
	for {
		at := link.Attrs()
		if _, loop := vlans[at.Index]; loop {
			return vlans, nil
		}
		switch l := link.(type) {
		case *netlink.Vlan:
			vlans[at.Index] = vlan
			vlan = l.VlanId
		case *netlink.Macvlan, *netlink.IPVlan:
			vlans[at.Index] = vlan
		default:
			vlans[at.Index] = vlan
			return vlans, nil
		}
		if at.NetNsID >= 0 {
			return vlans, nil // the lower device is in another namespace
		}
		var err error
		if link, err = byIndex(at.ParentIndex); err != nil {
			return nil, err
		}
	}
}

func sources(addr netip.Addr, link int) ([]netip.Addr, error) {
	all, err := netlink.AddrList(nil, family(addr))
	if err != nil {
		return nil, fmt.Errorf("addresses of this host: %w", err)
	}
	var out []netip.Addr
	for _, a := range all {
		from, ok := netip.AddrFromSlice(a.IP)
		from = from.Unmap()
		if !ok || from.IsLoopback() || from.IsLinkLocalUnicast() {
			continue
		}
		if r, err := get(addr, from); err == nil && r.LinkIndex == link {
			out = append(out, from)
		}
	}
	return out, nil
}

// Through reports whether packets to the address leave by the device dev, or by the bond that
// dev is in. vlan is the VLAN ID of the packets on it, 0 for none.
func (p Path) Through(dev string) (vlan int, ok bool) {
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return 0, false
	}
	return p.through(link.Attrs())
}

func (p Path) through(link *netlink.LinkAttrs) (vlan int, ok bool) {
	if vlan, ok = p.vlans[link.Index]; !ok && link.MasterIndex != 0 {
		vlan, ok = p.vlans[link.MasterIndex]
	}
	return vlan, ok
}

// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// DeviceOf returns the device of this network namespace that has exactly this
// address, "" if none has. Uppers that have the same address as what is below
// them are not known: an address belongs to one device. It is asked for each pod
// that comes or goes: of the links of a hundred pods none is read.
func DeviceOf(addr string) (string, error) {
	want := net.ParseIP(addr)
	if want == nil {
		return "", fmt.Errorf("%q is no IP address", addr)
	}
	family := netlink.FAMILY_V6
	if want.To4() != nil {
		family = netlink.FAMILY_V4
	}
	addrs, err := netlink.AddrList(nil, family)
	// what has changed meanwhile may be missing
	for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < 100; tries++ {
		addrs, err = netlink.AddrList(nil, family)
	}
	if err != nil {
		return "", fmt.Errorf("addresses of the node: %w", err)
	}
	for _, a := range addrs {
		if a.IPNet == nil || !a.IP.Equal(want) {
			continue
		}
		link, err := netlink.LinkByIndex(a.LinkIndex)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("the device with %s: %w", addr, err)
		}
		return link.Attrs().Name, nil
	}
	return "", nil
}

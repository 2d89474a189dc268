// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// DeviceOf returns the name of the device in this network namespace that has this address, "" if
// none has it. It runs for each pod that comes or goes, so it lists only addresses, and not the
// links of 100 pods.
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
	// If addresses change during the dump, it may be incomplete.
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

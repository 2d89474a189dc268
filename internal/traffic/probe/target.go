// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"net/netip"
)

// ParseTarget parses another host's address, "10.0.0.2" or "fd00::2", with or without a port
// ("10.0.0.2:22", "[fd00::2]:22"). If s has no port, port is 0.
func ParseTarget(s string) (addr netip.Addr, port uint16, err error) {
	if addr, err = netip.ParseAddr(s); err != nil {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			return addr, 0, errors.New("want an IPv4 or IPv6 address, or one with a port (10.0.0.2:22, [fd00::2]:22)")
		}
		if addr, port = ap.Addr(), ap.Port(); port == 0 {
			return addr, 0, errors.New("port 0: want 1 to 65535, or none")
		}
	}
	addr = addr.Unmap()
	switch {
	case addr.Zone() != "" || addr.IsLinkLocalUnicast():
		return addr, port, errors.New("a link-local address: want an address that a route leads to")
	case addr.IsUnspecified(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return addr, port, errors.New("want the address of one host")
	case addr.IsLoopback():
		return addr, port, errors.New("this host's own address: want that of another host")
	}
	return addr, port, nil
}

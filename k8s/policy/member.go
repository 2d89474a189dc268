// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Has reports whether a packet of the protocol belongs to the member. own is the packet's address
// and port on the pod's side, remote those on the other side.
func (m *Member) Has(protocol string, own, remote netip.AddrPort) bool {
	return m.Protocol == protocol && covers(m.Addrs, m.Ports, own) && covers(m.RemoteAddrs, m.RemotePorts, remote)
}

func covers(addrs []netip.Prefix, ports []string, a netip.AddrPort) bool {
	in := func(p netip.Prefix) bool { return p.Contains(a.Addr()) }
	return (len(addrs) == 0 || slices.ContainsFunc(addrs, in)) &&
		(len(ports) == 0 || slices.ContainsFunc(ports, func(s string) bool {
			return inRange(s, a.Port())
		}))
}

// inRange reports whether the port is equal to "80" or within "8000-8010".
func inRange(s string, port uint16) bool {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	low, err1 := strconv.ParseUint(first, 10, 16)
	high, err2 := strconv.ParseUint(last, 10, 16)
	return err1 == nil && err2 == nil && uint16(low) <= port && port <= uint16(high)
}

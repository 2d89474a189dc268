// SPDX-License-Identifier: Apache-2.0

package params

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Frontend is an address and a port that the node translates to a pod's.
type Frontend struct {
	// Addr is the zero Addr if the frontend has the node's own addresses.
	Addr netip.Addr
	// Ports is one port of one protocol.
	Ports Ports
}

// ParseFrontend reads one item of frontends.
func ParseFrontend(s string) (Frontend, error) {
	const want = "want PORT or ADDRESS:PORT (an IPv6 address in brackets), and /TCP or /UDP if it is not TCP"
	var f Frontend
	text := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]"))
		if err != nil || addr.Zone() != "" || addr.Is4In6() || addr.IsUnspecified() ||
			addr.Is6() != strings.HasPrefix(s, "[") {
			return Frontend{}, fmt.Errorf("found %q, %s", s, want)
		}
		f.Addr, text = addr, s[i+1:]
	}
	ps, err := ParsePorts(text)
	if err != nil || len(ps) != 1 || ps[0].First == 0 || ps[0].First != ps[0].Last {
		return Frontend{}, fmt.Errorf("found %q, %s; ports are 1 to 65535", s, want)
	}
	f.Ports = ps[0]
	return f, nil
}

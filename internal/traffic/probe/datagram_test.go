// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

// TestDatagram: the checksums were computed by hand from RFC 768.
func TestDatagram(t *testing.T) {
	for _, c := range []struct{ name, local, remote, want string }{
		// 0a09+0001+0a09+0002+0011+0008+0035+ee48+0008 = 102b3, folded 02b4
		{"IPv4", "10.9.0.1:53", "10.9.0.2:61000", "0035ee480008fd4b"},
		// fd00+0001+fd00+0002+0011+0008+0035+ee48+0008 = 2e8a1, folded e8a3
		{"IPv6", "[fd00::1]:53", "[fd00::2]:61000", "0035ee480008175c"},
		// 0a09+0001+0a09+0002+0011+0008+0001+ebc8+0008 = ffff: 0 is sent as ffff
		{"a checksum of 0", "10.9.0.1:1", "10.9.0.2:60360", "0001ebc80008ffff"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := hex.EncodeToString(datagram(netip.MustParseAddrPort(c.local), netip.MustParseAddrPort(c.remote)))
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

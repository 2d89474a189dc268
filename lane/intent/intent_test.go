// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"net/netip"
	"testing"

	"github.com/niclane/niclane/lane/intent"
)

func TestPatterns(t *testing.T) {
	four, six := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::1/128")
	for name, c := range map[string]struct {
		member intent.Member
		want   int
	}{
		"a port, both families":     {intent.Member{Ports: []uint16{80}}, 2},
		"ports":                     {intent.Member{Ports: []uint16{80, 81}, RemotePorts: []uint16{1, 2, 3}}, 12},
		"an address has one family": {intent.Member{Ports: []uint16{80}, Addrs: []netip.Prefix{four}}, 1},
		"addresses of each":         {intent.Member{Addrs: []netip.Prefix{four, six}}, 2},
		"both sides, by family": {intent.Member{Addrs: []netip.Prefix{four, six},
			RemoteAddrs: []netip.Prefix{six, six}}, 2},
		"no packet has both addresses": {intent.Member{Addrs: []netip.Prefix{four}, RemoteAddrs: []netip.Prefix{six}},
			0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.member.Patterns(); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestRateOf(t *testing.T) {
	for name, c := range map[string]struct {
		rate intent.Rate
		link uint64
		want uint64
	}{
		"share":             {intent.Rate{Permille: 125}, 1_000_000_000, 125_000_000},
		"share of no link":  {intent.Rate{Permille: 125}, 0, 0},
		"absolute":          {intent.Rate{BitsPerSecond: 7}, 1_000_000_000, 7},
		"none":              {intent.Rate{}, 1_000_000_000, 0},
		"share of 10 Tbit":  {intent.Rate{Permille: 1000}, 10_000_000_000_000, 10_000_000_000_000},
		"share wins if set": {intent.Rate{Permille: 1, BitsPerSecond: 5}, 1000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.rate.Of(c.link); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"testing"

	"github.com/niclane/niclane/live/services"
)

// TestKinds: what ports do, by rates that were seen with real programs (packets with data and bytes
// per second).
func TestKinds(t *testing.T) {
	for name, c := range map[string]struct {
		protocol string
		in, out  services.Rate
		want     kind
	}{
		"a cache":                     {"tcp", services.Rate{Data: 9000, Bytes: 9e5}, services.Rate{Data: 9000, Bytes: 9e6}, request},
		"a cache with pipelining":     {"tcp", services.Rate{Data: 400, Bytes: 5e5}, services.Rate{Data: 9000, Bytes: 9e6}, request},
		"a database":                  {"tcp", services.Rate{Data: 60, Bytes: 6e3}, services.Rate{Data: 60, Bytes: 6e4}, request},
		"pages of 50 kB":              {"tcp", services.Rate{Data: 100, Bytes: 4e4}, services.Rate{Data: 3500, Bytes: 5e6}, request},
		"videos of 1 MB":              {"tcp", services.Rate{Data: 100, Bytes: 4e4}, services.Rate{Data: 70e3, Bytes: 1e8}, bulk},
		"an upload":                   {"tcp", services.Rate{Data: 9000, Bytes: 1.3e7}, services.Rate{Data: 30, Bytes: 1e3}, bulk},
		"a copy both ways":            {"tcp", services.Rate{Data: 9000, Bytes: 1.3e7}, services.Rate{Data: 9000, Bytes: 1.3e7}, bulk},
		"a health check":              {"tcp", services.Rate{Data: 1, Bytes: 100}, services.Rate{Data: 1, Bytes: 1e4}, idle},
		"just too few":                {"tcp", services.Rate{Data: 49, Bytes: 4900}, services.Rate{Data: 400, Bytes: 4e4}, idle},
		"silence":                     {"udp", services.Rate{}, services.Rate{}, idle},
		"only received, as syslog is": {"udp", services.Rate{Data: 900, Bytes: 9e4}, services.Rate{}, idle},
		"a name server":               {"udp", services.Rate{Data: 8000, Bytes: 4e5}, services.Rate{Data: 8000, Bytes: 2e6}, request},
		"a stream by QUIC":            {"udp", services.Rate{Data: 9000, Bytes: 4e5}, services.Rate{Data: 3e4, Bytes: 3.6e7}, bulk},
		"an upload by QUIC":           {"udp", services.Rate{Data: 3e4, Bytes: 3.6e7}, services.Rate{Data: 9000, Bytes: 4e5}, bulk},
	} {
		e := &services.Endpoint{Protocol: c.protocol, Traffic: &services.Traffic{In: c.in, Out: c.out}}
		if got := kindOf(e, 1500); got != c.want {
			t.Errorf("%s: got kind %d, want %d", name, got, c.want)
		}
	}
	if got := kindOf(&services.Endpoint{Protocol: "udp"}, 1500); got != unknown {
		t.Errorf("without traffic: got kind %d, want %d", got, unknown)
	}
}

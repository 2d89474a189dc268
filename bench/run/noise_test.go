// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/noise"
)

func TestNoiseEnds(t *testing.T) {
	for _, tt := range []struct {
		name, address string
		n             experiment.Noise
		want          noise.Config // configuration of the sender
	}{
		{"TCP, a share", "10.0.0.1:5001", experiment.Noise{Protocol: "tcp", Share: 500, Flows: 3, Segment: 1000,
			Congestion: "reno"},
			noise.Config{Rate: 724_000_000, Flows: 3, MSS: 1000, Congestion: "reno"}},
		{"UDP, a share", "10.0.0.1:5001", experiment.Noise{Protocol: "udp", Share: 500, Flows: 3},
			noise.Config{Rate: 736_000_000, Flows: 3, Datagram: 1472}},
		{"UDP, a rate", "[fd00::1]:5001", experiment.Noise{Protocol: "udp", BitsPerSecond: 1_514_000_000},
			noise.Config{Rate: 1_452_000_000, Datagram: 1452}},
		{"UDP, small ones", "10.0.0.1:5001", experiment.Noise{Protocol: "udp", BitsPerSecond: 142_000, Segment: 100},
			noise.Config{Rate: 100_000, Datagram: 100}},
	} {
		tt.want.Role, tt.want.Protocol, tt.want.Address = noise.Send, tt.n.Protocol, tt.address
		send, receive := noiseEnds(tt.n, tt.address, 1_514_000_000, 1500)
		if d := cmp.Diff(tt.want, send); d != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, d)
		}
		if d := cmp.Diff(noise.Config{Role: noise.Receive, Protocol: tt.n.Protocol, Address: tt.address,
			Flows: tt.n.Flows}, receive); d != "" {
			t.Errorf("%s: receiver: -want +got\n%s", tt.name, d)
		}
	}
}

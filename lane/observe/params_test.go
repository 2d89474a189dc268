// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// TestDriverPollers tries cards with and without Intel's own driver. That driver makes its
// parameters only with traffic classes, so before, only its private flags show it.
func TestDriverPollers(t *testing.T) {
	const flag = "channel-pkt-inspect-optimize"
	for _, tt := range []struct {
		name  string
		flags map[string]bool
		all   map[string]string
		err   error
		want  device.Answer
	}{
		{"no devlink", nil, nil, unix.EOPNOTSUPP, device.No},
		{"Linux's own ice", map[string]bool{"fw-lldp-agent": true}, map[string]string{"enable_roce": "true"}, nil,
			device.No},
		{"Intel's own ice without classes", map[string]bool{flag: true}, map[string]string{"enable_roce": "true"}, nil,
			device.Yes},
		{"an old release", map[string]bool{"channel-packet-inspect-optimize": false}, nil, nil, device.Yes},
		{"with classes", nil, map[string]string{"tc1_qps_per_poller": "0"}, nil, device.Yes},
		{"no answer", nil, nil, unix.ENOMEM, device.Unknown},
	} {
		d := &device.Device{PrivFlags: tt.flags}
		if got := driverPollers(d, tt.all, tt.err); got.Answer != tt.want || got.Why == "" {
			t.Errorf("%s: %+v, want %s", tt.name, got, tt.want)
		}
	}
}

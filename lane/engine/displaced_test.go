// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/niclane/niclane/lane/device"
)

// TestWithout: a device whose name is the old name of a renamed device is not in the result, and
// neither are its files. The given state does not change.
func TestWithout(t *testing.T) {
	mine, other := "/sys/class/net/v0/queues/tx-0/xps_cpus", "/sys/class/net/v1/queues/tx-0/xps_cpus"
	st := &device.State{
		Devices: []device.Device{{Name: "v0", Index: 7}, {Name: "v1", Index: 8}},
		Files:   map[string]device.File{mine: {Path: mine}, other: {Path: other}},
	}
	less := without(st, map[string]string{"v0": "it is called w0 now"})
	if _, there := less.Files[mine]; there || less.Device("v0") != nil {
		t.Errorf("%+v", less)
	}
	if _, there := less.Files[other]; !there || less.Device("v1") == nil {
		t.Errorf("%+v", less)
	}
	if len(st.Files) != 2 || len(st.Devices) != 2 {
		t.Errorf("the state was changed: %+v", st)
	}
}

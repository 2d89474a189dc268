// SPDX-License-Identifier: Apache-2.0

// Package host shows this host to a keeper of lanes, through the engine. It gives the keeper the
// state of applied lanes, the kernel notifications to wait for, and the conditions of repairs.
// niclane watch and niclane-agent use it. It decides nothing: package watch does.
package host

import (
	"fmt"
	"os"

	"github.com/niclane/niclane/lane/device"
)

// noIOUring is the sysctl that disables io_uring, which pollers need.
const noIOUring = "/proc/sys/kernel/io_uring_disabled"

// ground describes what repairs depend on apart from devices: control groups and io_uring. If the
// text changes, repairs that failed may now succeed.
func ground(st *device.State) string {
	b, err := os.ReadFile(noIOUring)
	return fmt.Sprint(st.Cgroups.Groups, st.Cgroups.V2Groups, st.Cgroups.PrioGroups, string(b), err)
}

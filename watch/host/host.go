// SPDX-License-Identifier: Apache-2.0

// Package host gives a keeper of lanes access to this host, through the engine: the state of
// applied lanes, the kernel's notifications, and the conditions of repairs. niclane watch and
// niclane-agent use it. It decides nothing; package watch does.
package host

import (
	"fmt"
	"os"

	"github.com/niclane/niclane/lane/device"
)

// noIOUring is the sysctl that disables io_uring, which pollers need.
const noIOUring = "/proc/sys/kernel/io_uring_disabled"

// ground returns a text about the conditions of repairs, without those of devices: control groups
// and io_uring. When the text changes, a repair that failed may now succeed.
func ground(st *device.State) string {
	b, err := os.ReadFile(noIOUring)
	return fmt.Sprint(st.Cgroups.Groups, st.Cgroups.V2Groups, st.Cgroups.PrioGroups, string(b), err)
}

// SPDX-License-Identifier: Apache-2.0

// Package host gives a keeper of lanes its view of this host, through the engine: the state of
// applied lanes, the kernel notifications to watch, and the conditions of repairs. niclane
// watch and niclane-agent use it. It decides nothing: package watch does.
package host

import (
	"fmt"
	"os"

	"github.com/niclane/niclane/lane/device"
)

// noIOUring is the sysctl that disables io_uring, which pollers need.
const noIOUring = "/proc/sys/kernel/io_uring_disabled"

// ground describes the conditions of repairs besides the devices: control groups and io_uring.
func ground(st *device.State) string {
	b, err := os.ReadFile(noIOUring)
	return fmt.Sprint(st.Cgroups.Groups, st.Cgroups.V2Groups, st.Cgroups.PrioGroups, string(b), err)
}

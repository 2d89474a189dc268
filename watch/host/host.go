// SPDX-License-Identifier: Apache-2.0

// Package host shows a keeper of lanes this host, by the engine: how applied lanes are,
// what the kernel is to tell about, and what repairs stand on. niclane watch and
// niclane-agent are made of it. It decides nothing: package watch does.
package host

import (
	"fmt"
	"os"

	"github.com/niclane/niclane/lane/device"
)

// noIOUring is the sysctl that takes io_uring away, and the pollers with it.
const noIOUring = "/proc/sys/kernel/io_uring_disabled"

// ground is what repairs need beside the devices: control groups and io_uring.
func ground(st *device.State) string {
	b, err := os.ReadFile(noIOUring)
	return fmt.Sprint(st.Cgroups.Groups, st.Cgroups.V2Groups, st.Cgroups.PrioGroups, string(b), err)
}

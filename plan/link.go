// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/niclane/niclane/device"
)

// headless says why niclane's programs cannot read a device's packets, "" if they
// can: their flow is found behind an Ethernet header (internal/bpf/c/flow.h: parse).
func headless(d *device.Device) string {
	if d.LinkType == "" {
		return ""
	}
	return fmt.Sprintf("packets of link type %s have no Ethernet header, behind which it reads flows", d.LinkType)
}

// tcx tests whether the classifier can be at TCX egress.
func tcx(st *device.State, d *device.Device) (bool, string) {
	if why := headless(d); why != "" {
		return false, why
	}
	return needs("by flow, one map lookup per pattern, at TCX egress, before others' programs and filters", device.CapTCX, device.CapClsBPF)(st, d)
}

// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/tc"
)

// equal is device.Equal, but that classes are compared as the kernel keeps
// them: its units for rates and bursts are coarser than bit/s and bytes.
func equal(a, b device.Object) bool {
	ca, okA := a.(device.Class)
	cb, okB := b.(device.Class)
	if okA && okB {
		return tc.SameClass(ca, cb)
	}
	return device.Equal(a, b)
}

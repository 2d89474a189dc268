// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"maps"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// differences returns the objects in which two states differ. It compares all objects that a plan
// can write, without the numbers that the kernel assigns.
func differences(before, after *device.State) []Difference {
	a, b := before.Objects(), after.Objects()
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var out []Difference
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if device.Equal(a[key], b[key]) {
			continue
		}
		out = append(out, Difference{Key: key, Before: text(a[key]), After: text(b[key])})
	}
	return out
}

func text(o device.Object) string {
	if o == nil {
		return ""
	}
	return plan.Brief(o)
}

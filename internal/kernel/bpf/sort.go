// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// sortByKey sorts objects by their keys. It makes each key only once, because making keys is
// most of the cost.
func sortByKey[T device.Object](objects []T) {
	type keyed struct {
		key string
		at  int
	}
	list := make([]keyed, len(objects))
	for i, o := range objects {
		list[i] = keyed{o.Key(), i}
	}
	slices.SortFunc(list, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	unsorted := slices.Clone(objects)
	for i, k := range list {
		objects[i] = unsorted[k.at]
	}
}

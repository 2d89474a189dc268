// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math/bits"

	"github.com/niclane/niclane/internal/traffic/flow"
)

// pattern is struct pattern of flow.h.
type pattern struct {
	Mask flow.Flow
	// Used counts the flows with this pattern. It is raised before a flow is added
	// and lowered after one is removed, so that a killed process can leave it too
	// high, never too low.
	Used uint32
	Rank uint32
}

// rank decides between patterns that match: it is the number of compared bits.
func rank(mask flow.Flow) uint32 {
	n := 0
	for _, b := range mask.Bytes() {
		n += bits.OnesCount8(b)
	}
	return uint32(n)
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math/bits"

	"github.com/niclane/niclane/internal/traffic/flow"
)

// pattern is struct pattern.
type pattern struct {
	Mask flow.Flow
	// Used counts the flows with this pattern. It is raised before a flow is
	// added and lowered after one was removed, so that a kill can leave it
	// too high, never too low.
	Used uint32
	Rank uint32
}

// rank is what decides between patterns: the number of bits compared.
func rank(mask flow.Flow) uint32 {
	n := 0
	for _, b := range mask.Bytes() {
		n += bits.OnesCount8(b)
	}
	return uint32(n)
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math/bits"

	"github.com/niclane/niclane/internal/traffic/flow"
)

// pattern is struct pattern of flow.h.
type pattern struct {
	Mask flow.Flow
	// Used counts the flows with this pattern. niclane raises it before it adds a flow, and
	// lowers it after it has removed one. So a killed process may leave it too high, but never
	// too low.
	Used uint32
	Rank uint32
}

// rank returns the number of bits that a pattern compares. If several patterns match a
// packet, the one with the highest rank wins. A pattern without a protocol, for packets of no lane
// (device.FilterEntry.Unshaped), ranks above all others.
func rank(mask flow.Flow) uint32 {
	n := 0
	if mask.AnyProtocol() {
		n = 8 * len(mask.Bytes())
	}
	for _, b := range mask.Bytes() {
		n += bits.OnesCount8(b)
	}
	return uint32(n)
}

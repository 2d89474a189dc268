// SPDX-License-Identifier: Apache-2.0

package device

import (
	"math"
	"math/bits"
)

// nsPerTick is the kernel's unit of a token bucket's depth: 1 << PSCHED_SHIFT
// nanoseconds (include/net/pkt_sched.h, since Linux 2.6.31).
const nsPerTick = 64

// BurstTicks returns the depth, in ticks, of a token bucket that holds the given bytes at a rate
// in bytes/s. It is rounded up and limited to the kernel's 32 bits.
func BurstTicks(bytesPerSecond uint64, bytes uint32) uint32 {
	if bytesPerSecond == 0 {
		return 0
	}
	ns := uint64(bytes) * 1_000_000_000 / nsPerTick // below 2^56
	t := ns / bytesPerSecond
	if t*bytesPerSecond*nsPerTick < uint64(bytes)*1_000_000_000 {
		t++
	}
	return uint32(min(t, math.MaxUint32))
}

// BurstBytes converts ticks back to bytes, rounded down. From 125 Mbit/s on, where a tick is at
// least a byte, BurstTicks(BurstBytes(t)) is t.
func BurstBytes(bytesPerSecond uint64, t uint32) uint32 {
	hi, lo := bits.Mul64(uint64(t)*nsPerTick, bytesPerSecond)
	if hi >= 1_000_000_000 {
		return math.MaxUint32
	}
	n, _ := bits.Div64(hi, lo, 1_000_000_000)
	return uint32(min(n, math.MaxUint32))
}

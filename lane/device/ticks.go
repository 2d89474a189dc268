// SPDX-License-Identifier: Apache-2.0

package device

import (
	"math"
	"math/bits"
)

// nsPerTick is the kernel's unit of a token bucket's depth: 1 << PSCHED_SHIFT
// nanoseconds (include/net/pkt_sched.h, since Linux 2.6.31).
const nsPerTick = 64

// BurstTicks gives the depth of a bucket that holds so many bytes at a rate in
// bytes/s, rounded up, at most the 32 bits the kernel has.
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

// BurstBytes is the inverse of BurstTicks, rounded down: BurstTicks(BurstBytes(t)) is t again for
// every rate from 125 kbit/s on, where a tick is at least a byte.
func BurstBytes(bytesPerSecond uint64, t uint32) uint32 {
	hi, lo := bits.Mul64(uint64(t)*nsPerTick, bytesPerSecond)
	if hi >= 1_000_000_000 {
		return math.MaxUint32
	}
	n, _ := bits.Div64(hi, lo, 1_000_000_000)
	return uint32(min(n, math.MaxUint32))
}

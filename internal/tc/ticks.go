// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"math"
	"math/bits"

	"github.com/niclane/niclane/device"
)

// nsPerTick is the kernel's unit of a token bucket's depth: 1 << PSCHED_SHIFT
// nanoseconds (include/net/pkt_sched.h, since Linux 2.6.31).
const nsPerTick = 64

// ticks gives the depth of a bucket that holds so many bytes at a rate in
// bytes/s, rounded up, at most the 32 bits the kernel has.
func ticks(bytesPerSecond uint64, bytes uint32) uint32 {
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

// depth is the inverse of ticks, rounded down: ticks(depth(t)) is t again for
// every rate from 125 kbit/s on, where a tick is at least a byte.
func depth(bytesPerSecond uint64, t uint32) uint32 {
	hi, lo := bits.Mul64(uint64(t)*nsPerTick, bytesPerSecond)
	if hi >= 1_000_000_000 {
		return math.MaxUint32
	}
	n, _ := bits.Div64(hi, lo, 1_000_000_000)
	return uint32(min(n, math.MaxUint32))
}

// SameClass reports whether two classes are the same to the kernel, which
// keeps rates in bytes/s and bursts in ticks of 64 ns.
func SameClass(a, b device.Class) bool { return normal(a) == normal(b) }

func normal(c device.Class) device.Class {
	c.Rate, c.Ceil = c.Rate/8, c.Ceil/8
	c.Burst, c.CBurst = ticks(c.Rate, c.Burst), ticks(c.Ceil, c.CBurst)
	return c
}

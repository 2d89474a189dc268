// SPDX-License-Identifier: Apache-2.0

package stats

import "math/bits"

// The buckets are those of an HdrHistogram with unit 1 and three significant digits. Values up to
// 2047 have a bucket each; above, there are 1024 buckets for every doubling. So a bucket's width is
// at most 1/1024 of its values. Package hdr has the same buckets, but does not export them. A
// Series needs them to keep windows small.
const (
	subBits = 11                             // 2048 values have a bucket each
	half    = 1 << (subBits - 1)             // buckets per doubling above these values
	buckets = (37-subBits+1)*half + half + 1 // the last bucket contains highest = 2^37
)

// bucketOf returns the bucket of v, 0 <= v <= highest.
func bucketOf(v int64) int {
	k := max(bits.Len64(uint64(v))-subBits, 0)
	return k*half + int(v>>k)
}

// bucketRange returns the lowest and highest value of a bucket.
func bucketRange(b int) (low, high int64) {
	k := max(b/half-1, 0)
	low = int64(b-k*half) << k
	return low, low + 1<<k - 1
}

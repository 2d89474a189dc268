// SPDX-License-Identifier: Apache-2.0

// Package statstest makes histograms for tests.
package statstest

import "github.com/niclane/niclane/bench/stats"

// Filled returns a histogram with the n values f(0) to f(n-1).
func Filled(n int, f func(i int) int64) *stats.Histogram {
	h := stats.NewHistogram()
	for i := range n {
		h.Record(f(i))
	}
	return h
}

// Equal returns a histogram that contains the value ns n times.
func Equal(n int, ns int64) *stats.Histogram { return Filled(n, func(int) int64 { return ns }) }

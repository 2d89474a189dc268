// SPDX-License-Identifier: Apache-2.0

package result

import "github.com/niclane/niclane/bench/stats"

// Jitter says how much the latency varies: how far P99 is above P50, in ns. Low and High bound it:
// they come from the ends of both percentiles' intervals, and so cover at least 90 %.
type Jitter struct {
	Value int64 `json:"valueNs"`
	Low   int64 `json:"lowNs"`
	High  int64 `json:"highNs"`
}

// jitter returns the jitter of a list of percentiles; nil if the sample is too small for one of the
// two.
func jitter(list []Percentile) *Jitter {
	middle, tail := at(list, 50).Estimate, at(list, 99).Estimate
	if middle == nil || tail == nil {
		return nil
	}
	return &Jitter{Value: tail.Value - middle.Value, Low: max(0, tail.Low-middle.High),
		High: tail.High - middle.Low}
}

// Text renders "120 µs (118 to 123)".
func (j *Jitter) Text() string {
	if j == nil {
		return "-"
	}
	return IntervalText(stats.Estimate{Value: j.Value, Low: j.Low, High: j.High})
}

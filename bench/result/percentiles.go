// SPDX-License-Identifier: Apache-2.0

package result

import (
	"slices"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/stats"
)

// usual are the percentiles of every summary.
var usual = [...]float64{50, 90, 99, 99.9, 99.99}

// rare is a percentile that only long runs have enough samples for. It is shown if there are
// enough, even if the experiment does not ask for it.
const rare = 99.999

// delivery is a percentile of every summary of HTTP: the paper about Traffic Server has it.
const delivery = 99.5

// percentiles returns the percentiles of a summary: the usual ones, that of HTTP, those that the
// experiment names, and the rare one if any variant at any load point has enough samples.
func (r *Result) percentiles() []float64 {
	out := slices.Clone(usual[:])
	e := r.Experiment
	if len(e.Workload.Objects) > 0 {
		out = append(out, delivery)
	}
	for _, s := range e.SLAs() {
		out = append(out, s.Percentile)
	}
	if e.Repeats.Until != nil {
		out = append(out, e.Repeats.Until.Percentile)
	}
	for _, g := range e.Goals {
		if g.Measure == experiment.MeasureLatency {
			out = append(out, g.Percentile)
		}
	}
	type place struct {
		point   int
		variant string
	}
	samples := map[place]int64{}
	for _, w := range r.Windows {
		if w.Purpose == Repeat {
			p := place{w.Point, w.Variant}
			if samples[p] += w.Load.Latency.Count(); samples[p] >= stats.Needed(rare) {
				out = append(out, rare)
				break
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

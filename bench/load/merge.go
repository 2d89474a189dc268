// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"slices"

	"github.com/niclane/niclane/bench/stats"
)

// Merge merges the results of generators that ran at the same time with the same configuration, in
// several processes or on several hosts. It adds counts and rates and merges histograms. It averages
// only the RTT. It merges series window by window, which is correct only if the generators began
// together. It refuses results that cannot belong to one run.
func Merge(rs ...Result) (Result, error) {
	if len(rs) == 0 {
		return Result{}, errors.New("merge: no results")
	}
	if len(rs) == 1 {
		return rs[0], nil
	}
	sum := Result{Mode: rs[0].Mode, Duration: rs[0].Duration, StartMono: rs[0].StartMono}
	var series, first []*stats.Series
	var rtt, measured int64
	for i := range rs {
		r := &rs[i]
		switch {
		case r.Mode != sum.Mode:
			return Result{}, fmt.Errorf("merge: result %d is of mode %q, the first of %q", i, r.Mode, sum.Mode)
		case len(r.Steps) != len(rs[0].Steps):
			return Result{}, fmt.Errorf("merge: result %d has %d steps, the first %d", i, len(r.Steps),
				len(rs[0].Steps))
		case r.Duration != sum.Duration && !r.Partial && !rs[0].Partial:
			return Result{}, fmt.Errorf("merge: result %d is of %d ns, the first of %d ns", i, r.Duration, sum.Duration)
		}
		sum.Duration = max(sum.Duration, r.Duration)
		sum.StartMono = min(sum.StartMono, r.StartMono)
		sum.add(r)
		sum.addArrivals(r)
		sum.Retransmits += r.Retransmits
		if r.RTT > 0 {
			rtt += r.RTT
			measured++
		}
		if r.Series != nil {
			series = append(series, r.Series)
		}
		if r.FirstByteSeries != nil {
			first = append(first, r.FirstByteSeries)
		}
		for _, w := range r.Warnings {
			if !slices.Contains(sum.Warnings, w) {
				sum.Warnings = append(sum.Warnings, w)
			}
		}
	}
	if measured > 0 {
		sum.RTT = rtt / measured
	}
	var err error
	if len(series) > 0 {
		if sum.Series, err = stats.MergeSeries(series...); err != nil {
			return Result{}, err
		}
	}
	if len(first) > 0 {
		if sum.FirstByteSeries, err = stats.MergeSeries(first...); err != nil {
			return Result{}, err
		}
	}
	for i := range rs[0].Steps {
		steps := make([]Result, len(rs))
		for j := range rs {
			steps[j] = rs[j].Steps[i]
		}
		step, err := Merge(steps...)
		if err != nil {
			return Result{}, fmt.Errorf("step %d: %w", i, err)
		}
		sum.Steps = append(sum.Steps, step)
	}
	sum.rates()
	return sum, nil
}

// follow returns one result that has the results of steps as its Steps. It has no series,
// because the time between steps is not measured.
func follow(steps []Result) Result {
	sum := Result{Mode: steps[0].Mode, StartMono: steps[0].StartMono}
	for i := range steps {
		s := &steps[i]
		sum.add(s)
		sum.Duration += s.Duration
		sum.Retransmits, sum.RTT = s.Retransmits, s.RTT // counted since the connections were opened
		for _, w := range s.Warnings {
			sum.Warnings = append(sum.Warnings, fmt.Sprintf("step %d: %s", i+1, w))
		}
	}
	sum.rates()
	sum.Steps = steps
	return sum
}

// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/hiccup"
	"github.com/niclane/niclane/bench/stats"
)

const (
	// nearFloor is the part of an idle percentile that the host's own noise may
	// have before the percentile is called the host's.
	nearFloor = 0.5
	// busyHost is the share of a processor that others may use while nothing of
	// ours runs before it is mentioned.
	busyHost = 0.1
)

// notes says which percentiles are the host's rather than the link's, and who
// else used it.
func notes(r *Result, s *Summary) []string {
	var list []string
	var late []*stats.Histogram
	for _, h := range r.Hiccups {
		for _, c := range h.CPUs {
			late = append(late, c.Late)
		}
	}
	floor := stats.Merge(late...)
	for _, l := range s.Latency {
		if l.Variant != Idle || floor.Count() == 0 {
			continue
		}
		for _, v := range l.Values {
			if v.Missing != "" {
				continue
			}
			own, err := stats.Percentile(floor, v.P)
			what := percentile(v.P)
			if err != nil { // too few wake-ups: the worst one tells
				own, what = floor.Max(), "worst"
			}
			if float64(own) > nearFloor*float64(v.NS) {
				list = append(list, fmt.Sprintf("%s is the host's: it is %s on the idle link, and a thread that only sleeps woke %s late (%s)",
					percentile(v.P), duration(float64(v.NS)), duration(float64(own)), what))
			}
		}
	}
	for i, h := range r.Hiccups {
		var cpus []string
		for _, c := range h.CPUs {
			if c.Total > 0 && float64(c.Busy+c.Steal) > busyHost*float64(c.Total) {
				cpus = append(cpus, fmt.Sprintf("%s of cpu %d", share(float64(c.Busy+c.Steal)/float64(c.Total)), c.CPU))
			}
		}
		if len(cpus) > 0 {
			moment := when(r, i)
			list = append(list, fmt.Sprintf("%s the comparison others used %s%s", strings.ToUpper(moment[:1])+moment[1:], strings.Join(cpus, " and "), culprits(h.Host.Busy)))
		}
	}
	return list
}

// culprits names the busiest processes.
func culprits(busy []hiccup.Process) string {
	var names []string
	for _, p := range busy[:min(len(busy), 3)] {
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return ", most of it " + strings.Join(names, ", ")
}

// when names the i-th measurement of the noise floor.
func when(r *Result, i int) string {
	switch {
	case i == 0:
		return "before"
	case i == len(r.Hiccups)-1:
		return "after"
	}
	return fmt.Sprintf("amid (%d)", i)
}

// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"

	"github.com/niclane/niclane/bench/stats"
)

// A Floor says how late one processor woke a thread that only slept.
type Floor struct {
	When string `json:"when"` // when it was measured: "before" or "after" the run, "amid 1", ...
	CPU  int    `json:"cpu"`
	// Percentiles are P50, P99 and P99.9, if the sample is large enough for them. They have no
	// intervals, because the sample is not divided into windows.
	Percentiles []stats.Step `json:"percentiles"`
	Max         int64        `json:"maxNs"`
	// Steal is the share of the processor's time that the hypervisor used, Busy the share that other
	// processes used.
	Steal float64 `json:"steal"`
	Busy  float64 `json:"busy"`
	// Others are the processes that used most of Busy.
	Others []string     `json:"others,omitempty"`
	Curve  []stats.Step `json:"curve"`
}

func (r *Result) floor() (out []Floor) {
	for i, h := range r.HostNoise {
		when := "before"
		switch {
		case i > 0 && i == len(r.HostNoise)-1:
			when = "after"
		case i > 0:
			when = fmt.Sprintf("amid %d", i)
		}
		var others []string
		for _, p := range h.Host.Busy[:min(3, len(h.Host.Busy))] {
			others = append(others, p.Name)
		}
		for _, c := range h.CPUs {
			f := Floor{When: when, CPU: c.CPU, Max: c.Late.Max(), Others: others,
				Percentiles: three(c.Late), Curve: stats.Curve(c.Late, curvePoints)}
			if c.Total > 0 {
				f.Steal, f.Busy = float64(c.Steal)/float64(c.Total), float64(c.Busy)/float64(c.Total)
			}
			out = append(out, f)
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/stats"
)

// CPU says how a processor treated threads that only slept and woke up (package hiccup).
type CPU struct {
	CPU                int
	Late               *stats.Histogram
	Steal, Busy, Total int64 // in ns; Busy was measured while no process of the experiment ran
}

// Host says what else happened on the machine.
type Host struct {
	CPUs []CPU
	// Autogroup is kernel.sched_autogroup_enabled: "on", "off" or "absent".
	Autogroup string
	// Others are the names of the processes that used most of Busy.
	Others []string
}

const (
	stealShare = 0.01 // share of a processor that the hypervisor may take
	busyShare  = 0.1  // share of a processor that other processes may use
)

// HostNoise compares the host's own noise with an effect, the difference of percentile p between
// two variants, in ns. If a sleeping thread wakes up that late, the host may be the cause of the
// effect.
func HostNoise(h Host, p float64, effect int64) (warnings []Warning) {
	var stolen, busy []string
	most := map[string]float64{}
	for _, c := range h.CPUs {
		floor, err := stats.Percentile(c.Late, p)
		what := fmt.Sprintf("P%v", p)
		if err != nil { // too few wake-ups for the percentile: use the latest
			floor, what = c.Late.Max(), "at worst"
		}
		if floor > 0 && floor >= effect {
			warnings = append(warnings, Warning{
				Check: "host-noise",
				Text: fmt.Sprintf("cpu %d wakes a thread that only sleeps %s late (%s); the effect at P%v is %s",
					c.CPU, ns(float64(floor)), what, p, ns(float64(effect))),
				Values: map[string]float64{"cpu": float64(c.CPU), "p": p, "lateNs": float64(floor),
					"effectNs": float64(effect)},
			})
		}
		if c.Total <= 0 {
			continue
		}
		if share := float64(c.Steal) / float64(c.Total); share > stealShare {
			stolen = append(stolen, fmt.Sprintf("%.1f %% of cpu %d", 100*share, c.CPU))
			most["steal"] = max(most["steal"], share)
		}
		if share := float64(c.Busy) / float64(c.Total); share > busyShare {
			busy = append(busy, fmt.Sprintf("%.0f %% of cpu %d", 100*share, c.CPU))
			most["busy"] = max(most["busy"], share)
		}
	}
	if len(stolen) > 0 {
		warnings = append(warnings, Warning{
			Check:  "steal",
			Text:   "the hypervisor took " + strings.Join(stolen, " and "),
			Values: map[string]float64{"share": most["steal"]},
		})
	}
	if len(busy) > 0 {
		text := "other processes used " + strings.Join(busy, " and ")
		if len(h.Others) > 0 {
			text += ", most of it " + strings.Join(h.Others, ", ")
		}
		warnings = append(warnings, Warning{Check: "other-load", Text: text,
			Values: map[string]float64{"share": most["busy"]}})
		if h.Autogroup == "on" {
			// sched(7): with autogroup, nice values have an effect only within a session.
			warnings = append(warnings, Warning{
				Check: "autogroup",
				Text: "sched_autogroup is on: the scheduler divides processors equally between sessions, independent " +
					"of their number of threads and nice values",
				Values: map[string]float64{},
			})
		}
	}
	return warnings
}

// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/result"
)

// A spent is a row of the table of processor time. It says on what one variant spent time at the
// load point, by the SUT's counters, and how long threads waited for a processor.
type spent struct {
	Variant, Took, Server, Waited, Switches, Busy, SoftIRQ, Polls, PerPoll, By string
}

// spent returns a row for each variant that has counters.
func (o *Outcome) spent(point int) []spent {
	var out []spent
	for _, v := range o.Result.Variants {
		if s, ok := spentBy(v.Name, o.windows(point, v.Name)); ok {
			out = append(out, s)
		}
	}
	return out
}

func spentBy(variant string, windows map[int]*result.Window) (spent, bool) {
	var requests, running, waiting, switches, idle, softirq, all float64
	var polls, packets, thread, busy float64
	for _, w := range windows {
		m := w.Machine
		if m == nil || w.Load.Completed == 0 {
			continue
		}
		n := w.Load.Work.Gets + w.Load.Work.Sets // with the warm-up's requests, because the counters include them
		if n == 0 {
			n = w.Load.Completed
		}
		requests += float64(n)
		for _, p := range m.Processes {
			if p.Name == "server" {
				running, waiting = running+float64(p.Running), waiting+float64(p.Waiting)
				switches += float64(p.Voluntary + p.Involuntary)
			}
		}
		for _, c := range m.CPUs {
			idle, softirq, all = idle+float64(c.Idle), softirq+float64(c.SoftIRQ), all+float64(m.Duration)
		}
		for _, p := range m.NAPIs {
			polls, packets = polls+float64(p.Polls), packets+float64(p.Packets)
			thread, busy = thread+float64(p.Thread), busy+float64(p.Busy)
		}
	}
	if requests == 0 || all == 0 {
		return spent{}, false
	}
	s := spent{Variant: variant, Server: "not counted", Waited: "not counted", Switches: "not counted",
		Polls: "not counted", PerPoll: "-", By: "-",
		Took: result.DurationText((all - idle) / requests), Busy: percent(1 - idle/all),
		SoftIRQ: percent(softirq / all)}
	if running > 0 {
		s.Server, s.Waited = result.DurationText(running/requests), result.DurationText(waiting/requests)
		s.Switches = fmt.Sprintf("%.2f", switches/requests)
	}
	if polls > 0 {
		s.Polls, s.PerPoll = fmt.Sprintf("%.2f", polls/requests), fmt.Sprintf("%.1f", packets/polls)
		s.By = pollsBy(thread/polls, busy/polls)
	}
	return s, true
}

// pollsBy says which kinds of threads polled the queues.
func pollsBy(thread, busy float64) string {
	var out []string
	for _, x := range []struct {
		share float64
		who   string
	}{{thread, "threads"}, {busy, "busy polling"}, {1 - thread - busy, "interrupts"}} {
		if x.share >= 0.005 {
			out = append(out, percent(x.share)+" "+x.who)
		}
	}
	return strings.Join(out, ", ")
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*max(0, share)) }

// SPDX-License-Identifier: Apache-2.0

package result

import (
	"math"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/stats"
)

// TestProcessorTime gives no-lane twice the processor time of idle. Summary and goals count it.
func TestProcessorTime(t *testing.T) {
	r := fixture()
	for i := range r.Windows {
		if w := &r.Windows[i]; w.Variant == "no-lane" {
			w.Machine.Processes[0].User += 10_000_000 // 5 µs for each of 2,000 requests
		}
	}
	goal := func(variant string, most float64) experiment.Goal {
		return experiment.Goal{Measure: experiment.MeasureProcessorTime, Variant: variant, Base: "idle", AtMost: most}
	}
	r.Experiment.Goals = []experiment.Goal{goal("no-lane", 1.9), goal("no-lane", 2.1), goal("twin", 1.1)}
	p := Summarize(r).Points[0]
	if got := p.Variants[1].ServerCPU; got != 10_000 {
		t.Errorf("no-lane takes %v ns a request, want 10000", got)
	}
	if got := p.Variants[1].ServerCPURatio; got == nil || math.Abs(got.Estimate-2) > 1e-6 {
		t.Errorf("no-lane to idle: %+v, want 2", got)
	}
	if got := p.Variants[0].ServerCPURatio; got != nil {
		t.Errorf("the base has a ratio: %+v", got)
	}
	for i, want := range []stats.Verdict{stats.Missed, stats.Met, stats.Met} {
		g := p.Goals[i]
		if g.Judgement == nil || g.Judgement.Verdict != want {
			t.Errorf("%s: %+v %s, want %s", g.Text, g.Judgement, g.Missing, want)
		}
	}
	if want := "processor time per request of no-lane at most 1.9 times that of idle"; p.Goals[0].Text != want {
		t.Errorf("goal %q, want %q", p.Goals[0].Text, want)
	}

	r.Windows[0].Machine = nil
	p = Summarize(r).Points[0]
	if g := p.Goals[0]; g.Judgement != nil || g.Missing != "the server's processor time is not known" {
		t.Errorf("without counters: %+v, %q", g.Judgement, g.Missing)
	}
}

// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// A liveRow is a wait or a measure of a trial, with a cell for each variant.
type liveRow struct {
	Name  string
	Cells []cell
}

// liveRows returns what a trial measured beside the whole time in the host.
func liveRows(p result.PointSummary) (out []liveRow) {
	if p.Mode != result.Live || len(p.Variants) == 0 {
		return nil
	}
	first := p.Variants[0].Live
	for _, x := range first.Waits {
		for j, c := range x.Percentiles {
			r := liveRow{Name: x.Stage + " " + result.PercentileText(c.P)}
			for _, v := range p.Variants {
				r.Cells = append(r.Cells, cells([]result.Percentile{v.Live.Wait(x.Stage, j)})...)
			}
			out = append(out, r)
		}
	}
	for i, m := range first.Measures {
		r := liveRow{Name: m.Label()}
		for _, v := range p.Variants {
			r.Cells = append(r.Cells, judgedCell(v.Live.Measures[i].Text(), v.Live.Measures[i].Ratio))
		}
		out = append(out, r)
	}
	load := liveRow{Name: "load"}
	for _, v := range p.Variants {
		load.Cells = append(load.Cells, judgedCell(number(v.Achieved)+"/s", v.Live.Load))
	}
	return append(out, load)
}

func judgedCell(value string, j *result.Judged) cell {
	c := cell{Value: value}
	if j != nil {
		c.Ratio, c.Ends, c.Why = "×"+times(j.Estimate), times(j.Low)+" to "+times(j.High), j.Difference.Reason
		if c.Same = j.Difference.Text == stats.Same; c.Same {
			c.Ratio += " " + stats.Same
		}
	}
	return c
}

// verdictClasses are the CSS classes of a trial's verdicts.
var verdictClasses = map[result.Outcome]string{result.Keep: "met", result.DoNotKeep: "missed", result.Weigh: "noisy",
	result.CannotTell: "noisy"}

// trialClaims returns a trial's verdicts.
func (v *view) trialClaims() (out []claim) {
	if v.Summary.Trial == nil {
		return nil
	}
	for _, x := range v.Summary.Trial.Verdicts {
		out = append(out, claim{What: x.Variant, Verdict: string(x.Outcome), Class: verdictClasses[x.Outcome],
			Reason: strings.Join(x.Reasons, "; ")})
	}
	return out
}

// trialLead says what a trial measured.
func trialLead(r *result.Result) []string {
	t := r.Trial
	var services []string
	for _, p := range r.Points {
		services = append(services, p.Service)
	}
	out := []string{
		fmt.Sprintf("Live traffic of %s: the time of requests in this host (%s)", strings.Join(services, ", "),
			t.Measure),
		fmt.Sprintf("Windows of %s in a random, balanced order (seed %d), at least %s after each switch",
			result.DurationText(float64(r.Experiment.Load.Window)), t.Seed, result.DurationText(float64(t.Settle))),
		"Before the trial, " + t.Baseline,
	}
	if len(t.Prepared) > 0 {
		out = append(out, "Prepared once, in every variant: "+strings.Join(t.Prepared, "; "))
	}
	return out
}

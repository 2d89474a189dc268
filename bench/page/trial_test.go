// SPDX-License-Identifier: Apache-2.0

package page

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/result"
)

// trialResult returns a trial of two services, made from the windows of everything.
func trialResult() *result.Result {
	r := everything()
	r.Text, r.Experiment.SLA, r.Experiment.Goals, r.Experiment.Noise = "", nil, nil, nil
	r.Searches, r.HostNoise = nil, nil
	r.Experiment.Load.Mode = result.Live
	r.Trial = &result.Trial{Seed: 7, Settle: 1e9, LoadWithin: 200, Worth: 50, Measure: "host",
		Baseline: "the host had no lanes of these files", Prepared: []string{"a root qdisc"}}
	r.Points = []result.Point{{Mode: result.Live, Service: "memcached", Rounds: 6},
		{Mode: result.Live, Service: "port 9100/tcp", Neighbour: true, Rounds: 6}}
	var windows []result.Window
	for _, w := range r.Windows {
		if w.Purpose != result.Repeat {
			continue
		}
		w.Noise, w.Power, w.Machine, w.Hops, w.Load.Series = nil, nil, nil, nil, nil
		w.Live = &result.LiveWindow{CPU: 1e8, Retransmits: 2,
			Waits: []result.LiveWait{{Stage: "socket-to-card", Latency: w.Load.Latency}}}
		windows = append(windows, w)
	}
	r.Windows = windows
	return r
}

// TestTrialPage checks what the page of a trial has, and what it has not.
func TestTrialPage(t *testing.T) {
	page := render(t, trialResult())
	for _, want := range []string{"Cannot tell whether to keep lane.", "Live traffic of memcached, port 9100/tcp",
		"seed 7", "Prepared once, in every variant: a root qdisc", "socket-to-card P99", "processor time",
		"sent again, of a million requests", `<div class="verdict noisy">cannot tell</div>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, not := range []string{"The generator", "intended send time", "How to repeat it", "Latency over load", "Fan-out"} {
		if strings.Contains(page, not) {
			t.Errorf("has %q", not)
		}
	}
}

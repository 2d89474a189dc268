// SPDX-License-Identifier: Apache-2.0

package experiment

import "time"

// sizedTrial is the entry in Experiment.Sized that marks a trial.
const sizedTrial = "trial"

// Longest times of a trial, in ns: window, warm-up, and measurement of host noise.
const (
	trialWindow = int64(time.Second)
	trialWarmup = int64(200 * time.Millisecond)
	trialHost   = int64(100 * time.Millisecond)
)

// Trial reports whether an experiment is a trial, which measures one short window of each variant
// at the highest load.
func (e *Experiment) Trial() bool {
	n := len(e.Sized)
	return n > 0 && e.Sized[n-1] == sizedTrial
}

// try reduces an experiment that has passed every check to a trial. A trial shows only that
// everything starts: each variant with its server, lanes and tuning, the noise, and the highest
// load.
func (r *reader) try() {
	if !r.trial || len(r.Errors()) > 0 {
		return
	}
	e := &r.e
	e.Sized = append(e.Sized, sizedTrial)
	l := &e.Load
	if n := len(l.Rates); n > 0 {
		l.Rates = l.Rates[n-1:]
	}
	if n := len(l.Connections); n > 0 && l.Mode == Closed {
		l.Connections = l.Connections[n-1:]
	}
	l.Warmup, l.Window = min(l.Warmup, trialWarmup), min(l.Window, trialWindow)
	e.HostNoise.Window = min(e.HostNoise.Window, trialHost)
	e.Repeats = Repeats{Min: 1, Max: 1}
	e.Search, e.Sweep, e.Goals = nil, nil, nil
}

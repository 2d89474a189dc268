// SPDX-License-Identifier: Apache-2.0

package phc

import (
	"math"
	"time"
)

// A Reading is what a PHC and CLOCK_MONOTONIC showed at the same time, in ns. Mono may be wrong by
// Error.
type Reading struct{ PHC, Mono, Error int64 }

// A Relation converts times of a PHC: d ns after PHC are d + d*Slope/2^32 ns after Mono. It holds
// near its reading, and until the PHC jumps or changes its rate.
type Relation struct {
	PHC, Mono int64 // the last reading
	Slope     int64 // parts of 2^32
	Error     int64 // by how much a converted time of the next Interval may be wrong, in ns
	Jumps     int64 // how often the PHC had jumped
}

// Interval is the time between a Tracker's readings.
const Interval = 100 * time.Millisecond

const (
	// maxDrift is the greatest change of a PHC's rate between two readings that is no jump. Cards' free
	// oscillators are within 100 ppm, and ptp4l slews most cards by less than 500 ppm.
	maxDrift = 500e-6
	// baseline is the time over which a rate is measured, shortest until the first one is known.
	baseline      = time.Second
	shortBaseline = Interval / 2
	// maxError is the error of a reading that is not used. The thread waited for a processor meanwhile.
	maxError = int64(250 * time.Microsecond)
)

// A Tracker makes relations from readings, oldest first. The zero Tracker is ready to use.
type Tracker struct {
	readings []Reading // since the last jump, within baseline
	slope    float64   // ns of CLOCK_MONOTONIC for each ns of the PHC, less 1
	relation Relation
	valid    bool
}

// Add enters a reading and returns the relation, false if there is none: before the second reading,
// and after a jump until the next one.
func (t *Tracker) Add(r Reading) (Relation, bool) {
	if r.Error > maxError {
		return t.relation, t.valid
	}
	if n := len(t.readings); n > 0 {
		// Differences are right also where the PHC's time wraps.
		last := t.readings[n-1]
		mono, off := float64(r.Mono-last.Mono), float64(r.Mono-last.Mono-(r.PHC-last.PHC))
		if math.Abs(off-mono*t.slope) > mono*maxDrift+float64(r.Error+last.Error) {
			*t = Tracker{relation: Relation{Jumps: t.relation.Jumps + 1}}
		}
	}
	t.readings = append(t.readings, r)
	for len(t.readings) > 2 && r.Mono-t.readings[0].Mono > int64(baseline) {
		t.readings = t.readings[1:]
	}
	base := t.readings[0]
	if long := r.Mono - base.Mono; long >= int64(shortBaseline) {
		t.valid = true
		t.slope = float64(long-(r.PHC-base.PHC)) / float64(r.PHC-base.PHC)
		t.relation = Relation{PHC: r.PHC, Mono: r.Mono, Slope: int64(math.Round(t.slope * (1 << 32))),
			Error: r.Error + (r.Error+base.Error)*int64(Interval)/long, Jumps: t.relation.Jumps}
	}
	return t.relation, t.valid
}

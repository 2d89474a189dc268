// SPDX-License-Identifier: Apache-2.0

package watch

import "time"

// Patience limits how often the keeper repairs a drift that comes back.
type Patience struct {
	// First is the pause before the second repair. Each further pause is twice as long, up to
	// Longest. The first repair has no pause.
	First, Longest time.Duration
	// Times is the number of repairs after which the keeper leaves the drift.
	Times int
	// Forget is how long a drift must be absent until its earlier repairs no longer count.
	Forget time.Duration
}

// DefaultPatience is for drifts that come back at once. The keeper repairs such a drift nine times
// in eight and a half minutes, with pauses of 2, 4, 8 ... 256 s, and then leaves it. An example is
// a setting that irqbalance writes every ten seconds.
var DefaultPatience = Patience{First: 2 * time.Second, Longest: 5 * time.Minute, Times: 9, Forget: 15 * time.Minute}

// trouble is the history of one drift.
type trouble struct {
	// repairs is the number of tries to repair the drift. last is the time of the last try.
	repairs int
	last    time.Time
	// seen is when the drift was last present. there is true if the drift is present now.
	seen  time.Time
	there bool
	// reported is the value that was found at the last report.
	reported string
	// left: the keeper no longer repairs the drift. futile: apply has no step that repairs it.
	// released: the keeper itself has caused it, by Release.
	left, futile, released bool
	// failed: the last repair has failed.
	failed bool
	device string
}

// due returns the time at which the drift may be repaired next. If it may not, ok is false.
func (p Patience) due(t *trouble) (at time.Time, ok bool) {
	switch {
	case t.left || t.futile:
		return at, false
	case t.repairs == 0:
		return at, true
	}
	pause := p.First
	for range t.repairs - 1 {
		if pause *= 2; pause >= p.Longest {
			pause = p.Longest
			break
		}
	}
	return t.last.Add(pause), true
}

// anew lets the keeper try again if a repair has failed or was impossible.
func (t *trouble) anew() {
	if t.failed || t.futile {
		t.repairs, t.left, t.futile, t.failed = 0, false, false, false
	}
}

// repaired counts one repair.
func (p Patience) repaired(t *trouble, now time.Time) {
	t.repairs++
	t.last = now
}

// worn reports whether the drift has had all its repairs.
func (p Patience) worn(t *trouble) bool { return t.repairs >= p.Times }

// forgotten reports whether a drift has been absent for the time Forget.
func (p Patience) forgotten(t *trouble, now time.Time) bool {
	return !t.there && now.Sub(t.seen) >= p.Forget
}

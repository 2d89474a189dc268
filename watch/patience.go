// SPDX-License-Identifier: Apache-2.0

package watch

import "time"

// Patience limits the repairs of a drift that comes back.
type Patience struct {
	// First is the pause before the second repair. Each further pause is twice as long, up to
	// Longest. The first repair has no pause.
	First, Longest time.Duration
	// Times is the number of repairs after which the keeper leaves the drift.
	Times int
	// Forget is the time without the drift after which its repairs no longer count.
	Forget time.Duration
}

// DefaultPatience repairs a drift that comes back at once nine times, in eight and a half
// minutes: after 0, 2, 4, ... 128, 256 s. It then leaves a setting that irqbalance writes every
// ten seconds.
var DefaultPatience = Patience{First: 2 * time.Second, Longest: 5 * time.Minute, Times: 9, Forget: 15 * time.Minute}

// trouble is the history of one drift.
type trouble struct {
	// repairs is the number of attempts; last is the time of the last one.
	repairs int
	last    time.Time
	// seen is when the drift was last present. there is whether it is present.
	seen  time.Time
	there bool
	// reported is the found value in the last report.
	reported string
	// left: no more repairs. futile: apply has no step for the drift. released: the keeper's
	// own Release caused it.
	left, futile, released bool
	// failed: the last repair failed.
	failed bool
	device string
}

// due returns the time of the next repair; ok is false if there is none.
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

// anew resets a drift whose repair failed, so that it is tried again.
func (t *trouble) anew() {
	if t.failed || t.futile {
		t.repairs, t.left, t.futile, t.failed = 0, false, false, false
	}
}

// repaired counts a repair.
func (p Patience) repaired(t *trouble, now time.Time) {
	t.repairs++
	t.last = now
}

// worn reports whether the allowed repairs are used up.
func (p Patience) worn(t *trouble) bool { return t.repairs >= p.Times }

// forgotten reports whether a drift has been absent for Forget.
func (p Patience) forgotten(t *trouble, now time.Time) bool {
	return !t.there && now.Sub(t.seen) >= p.Forget
}

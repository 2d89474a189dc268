// SPDX-License-Identifier: Apache-2.0

package watch

import "time"

// Patience says how often a drift is repaired that comes back.
type Patience struct {
	// First is the pause before the second repair; each further one is twice
	// as long, at most Longest. The first repair has none.
	First, Longest time.Duration
	// Times is how many repairs there are before the drift is left as it is.
	Times int
	// Forget is how long a drift must not have been there for its repairs to
	// be forgotten.
	Forget time.Duration
}

// DefaultPatience repairs a drift that comes back at once nine times, in eight
// and a half minutes: 0, 2, 4, ... 128, 256 s. What irqbalance sets every ten
// seconds is left after that.
var DefaultPatience = Patience{First: 2 * time.Second, Longest: 5 * time.Minute, Times: 9, Forget: 15 * time.Minute}

// trouble is what is known of one drift.
type trouble struct {
	// repairs were made, or tried, the last one at.
	repairs int
	last    time.Time
	// seen is when it was last there; there whether it is now.
	seen  time.Time
	there bool
	// reported is what was there when it was reported.
	reported string
	// left: no more repairs. futile: apply has no step for it. released: the
	// keeper itself has brought it about.
	left, futile, released bool
	// failed: the last repair.
	failed bool
	device string
}

// due returns when the drift may be repaired; ok is false for never.
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

// anew has a drift that could not be repaired be tried as if it were new.
func (t *trouble) anew() {
	if t.failed || t.futile {
		t.repairs, t.left, t.futile, t.failed = 0, false, false, false
	}
}

// repaired counts one more.
func (p Patience) repaired(t *trouble, now time.Time) {
	t.repairs++
	t.last = now
}

// worn reports whether there were repairs enough.
func (p Patience) worn(t *trouble) bool { return t.repairs >= p.Times }

// forgotten reports whether a drift has been away for long enough.
func (p Patience) forgotten(t *trouble, now time.Time) bool {
	return !t.there && now.Sub(t.seen) >= p.Forget
}

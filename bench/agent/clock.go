// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"

	"github.com/niclane/niclane/bench/part/thread"
)

// An Offset is how far the agent's CLOCK_MONOTONIC is ahead of this host's, ns.
type Offset struct {
	Ns int64
	// Uncertainty: the true offset at At lies within Ns ± Uncertainty. It is half of the round
	// trip, because either direction may have taken all of it.
	Uncertainty int64
	At          int64 // on this host's CLOCK_MONOTONIC
}

// clockAsks is how often the clock is read. The quickest answer counts (Cristian,
// "Probabilistic clock synchronization", 1989).
const clockAsks = 9

// Offset measures the offset of the agent's clock.
func (c *Client) Offset(ctx context.Context) (Offset, error) {
	var best Offset
	for i := range clockAsks {
		var t Time
		before := thread.Monotonic()
		if err := c.do(ctx, http.MethodGet, "/clock", nil, &t); err != nil {
			return best, err
		}
		after := thread.Monotonic()
		if o := offset(before, t.Mono, after); i == 0 || o.Uncertainty < best.Uncertainty {
			best = o
		}
	}
	return best, nil
}

// offset returns the offset of a clock that was read between two times of this host.
func offset(before, theirs, after int64) Offset {
	middle := before + (after-before)/2
	return Offset{Ns: theirs - middle, Uncertainty: (after - before + 1) / 2, At: middle}
}

// Between interpolates the offset at a time between two readings, linearly. Its uncertainty
// covers those of both. Clocks of two hosts differ by some ten parts in a million, which is
// nearly constant between two readings.
func Between(a, b Offset, at int64) Offset {
	o := Offset{Ns: a.Ns, Uncertainty: max(a.Uncertainty, b.Uncertainty), At: at}
	if b.At > a.At {
		o.Ns += int64(float64(b.Ns-a.Ns) * float64(at-a.At) / float64(b.At-a.At))
	}
	return o
}

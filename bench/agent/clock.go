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
	// Uncertainty is half of the round trip, because one direction may have taken all of it. The
	// true offset at the time At is within Ns ± Uncertainty.
	Uncertainty int64
	At          int64 // time of the reading on this host's CLOCK_MONOTONIC
}

// clockAsks is how often Offset reads the agent's clock. It keeps the reading with the shortest
// round trip (Cristian, "Probabilistic clock synchronization", 1989).
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

// offset returns the offset of the agent's clock, whose reading is theirs. before and after are
// readings of this host's clock, taken before and after that one.
func offset(before, theirs, after int64) Offset {
	middle := before + (after-before)/2
	return Offset{Ns: theirs - middle, Uncertainty: (after - before + 1) / 2, At: middle}
}

// Between returns the offset at a time between the readings a and b, by linear interpolation. Its
// uncertainty is the larger one of a and b. The clocks of two hosts run at rates that differ by
// about ten parts per million. This difference is nearly constant between two readings.
func Between(a, b Offset, at int64) Offset {
	o := Offset{Ns: a.Ns, Uncertainty: max(a.Uncertainty, b.Uncertainty), At: at}
	if b.At > a.At {
		o.Ns += int64(float64(b.Ns-a.Ns) * float64(at-a.At) / float64(b.At-a.At))
	}
	return o
}

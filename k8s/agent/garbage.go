// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// quiet is how long nobody has asked for something when it is taken that nobody
	// waits.
	quiet = 50 * time.Millisecond
	// atRest is how long nobody has asked when it is taken that nobody will for a while.
	atRest = 10 * time.Second
	// percentAtRest is how much of what is live may be allocated then until garbage is
	// collected: little is, and what is resident is what the agent costs.
	percentAtRest = 50
)

// A collector is what is done about garbage.
type collector struct {
	due     func() bool
	collect func()
	rest    func(bool) // now, or no more
}

// ofRuntime is the collector of Go's runtime.
func ofRuntime() collector {
	before := 0
	return collector{due: collectionDue, collect: runtime.GC, rest: func(now bool) {
		if !now {
			debug.SetGCPercent(before)
			return
		}
		before = debug.SetGCPercent(percentAtRest)
		debug.FreeOSMemory()
	}}
}

// between has garbage collected when requests have left some and nobody waits.
// Otherwise every second request meets a collection, half of it within the few
// milliseconds that a pod waits: with 110 pods 2 of 4 ms of processor. When no request
// has come for longer, what they took is given back.
func (c collector) between(ctx context.Context, asked <-chan struct{}) error {
	idle := time.NewTimer(quiet)
	defer idle.Stop()
	collected, rests := false, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			if rests {
				c.rest(false)
			}
			collected, rests = false, false
			idle.Reset(quiet)
		case <-idle.C:
			if collected {
				rests = true
				c.rest(true)
				break
			}
			if c.due() {
				c.collect()
			}
			collected = true
			idle.Reset(atRest)
		}
	}
}

// collectionDue reports whether more than a quarter of what may be allocated between
// two collections has been.
func collectionDue() bool {
	m := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(m)
	live, goal, now := m[0].Value.Uint64(), m[1].Value.Uint64(), m[2].Value.Uint64()
	return now > live && goal > live && now-live > (goal-live)/4
}

// SPDX-License-Identifier: Apache-2.0

package app

import "slices"

// unknown stands for the processor of a queue or listener if it is not known.
const unknown = -1

// spread distributes queues over listeners. queues and listeners are given as the processors on
// which they are. For each queue, spread returns a list of listeners, from which a hash chooses an
// entry. So a listener with two entries gets twice as many connections as one with one entry.
//
// If all queues bring the same number of connections, all listeners get the same number. As far as
// this allows, spread prefers listeners on the queue's processor. After that, it prefers few
// listeners per queue, so that a listener has few NAPIs. A queue whose processor is unknown has no
// list. If the processors of all listeners are unknown, no queue has a list.
func spread(queues, listeners []int) [][]int {
	out := make([][]int, len(queues))
	known := 0
	for _, cpu := range queues {
		if cpu != unknown {
			known++
		}
	}
	if known == 0 || !slices.ContainsFunc(listeners, func(cpu int) bool { return cpu != unknown }) {
		return out
	}
	// Count in units, so that all shares are whole numbers: a queue supplies len(listeners) units, and
	// a listener demands one unit for each queue with a known processor.
	supply := make([]int, len(queues))
	for q, cpu := range queues {
		if cpu != unknown {
			supply[q] = len(listeners)
		}
	}
	demand := make([]int, len(listeners))
	for l := range demand {
		demand[l] = known
	}
	give := func(q int, to func(l int) bool) {
		for supply[q] > 0 {
			best := unknown
			for l := range demand {
				if demand[l] > 0 && to(l) && (best == unknown || demand[l] > demand[best]) {
					best = l
				}
			}
			if best == unknown {
				return
			}
			n := min(supply[q], demand[best])
			supply[q], demand[best] = supply[q]-n, demand[best]-n
			for range n {
				out[q] = append(out[q], best)
			}
		}
	}
	for q := range queues {
		give(q, func(l int) bool { return listeners[l] == queues[q] })
	}
	for q := range queues {
		give(q, func(int) bool { return true })
	}
	return out
}

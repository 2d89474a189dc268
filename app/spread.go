// SPDX-License-Identifier: Apache-2.0

package app

import "slices"

// unknown is the processor of a queue or listener whose processor is not known.
const unknown = -1

// spread assigns queues to listeners; both are given by their processors. It returns a list of
// listeners for each queue. A hash chooses among the entries of a list, so a listener that is
// in it twice gets twice the share.
//
// Every listener gets the same share if every queue brings the same. Within that, spread
// prefers listeners on the queue's processor, and then few listeners for each queue, so that a
// listener has few NAPIs. A queue on an unknown processor has no list. If all listeners are on
// unknown processors, no queue has a list.
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
	// A queue supplies len(listeners) units and a listener demands as many units as there are
	// known queues. All shares are then whole numbers.
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

// SPDX-License-Identifier: Apache-2.0

package app

import "slices"

// unknown is the processor of what sits on none that is known.
const unknown = -1

// spread says, for each queue, which listeners its connections go to: one of
// the list, by a hash, in which a listener can be more than once. Queues and
// listeners are given by their processors. Each listener gets the same share if
// each queue brings the same; within that, as much as possible goes to
// listeners on the queue's processor, and a queue's connections to as few
// listeners as possible, so that a listener's come by few NAPIs. A queue on no
// known processor has no list; without a listener on a known one there is none
// at all.
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
	// In units of which a queue brings as many as there are listeners, and a
	// listener wants as many as there are queues, everything is whole.
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

// SPDX-License-Identifier: Apache-2.0

package load

// queue is a ring of requests. It grows only when requests accumulate during a stall.
type queue struct {
	ring       []pending // length is a power of two
	head, tail uint64
}

func newQueue(room int) queue {
	n := 1
	for n < room {
		n *= 2
	}
	return queue{ring: make([]pending, n)}
}

func (q *queue) len() int        { return int(q.tail - q.head) }
func (q *queue) front() *pending { return &q.ring[q.head&uint64(len(q.ring)-1)] }
func (q *queue) pop()            { q.head++ }

func (q *queue) push(p pending) {
	if q.len() == len(q.ring) {
		bigger := make([]pending, max(1, 2*len(q.ring)))
		for i := q.head; i < q.tail; i++ {
			bigger[i&uint64(len(bigger)-1)] = q.ring[i&uint64(len(q.ring)-1)]
		}
		q.ring = bigger
	}
	q.ring[q.tail&uint64(len(q.ring)-1)] = p
	q.tail++
}

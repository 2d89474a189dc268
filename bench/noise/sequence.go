// SPDX-License-Identifier: Apache-2.0

package noise

// behind is how many numbers late a datagram may arrive and still be told from a duplicate. At 1
// Gbit/s with datagrams of 1472 bytes, this is 0.7 s.
const behind = 1 << 16

// A sequence tracks which of one flow's datagrams 0, 1, 2, ... have arrived. Its memory has a fixed
// size, because the numbers in datagrams may be forged.
type sequence struct {
	next       uint64 // one more than the highest number that has arrived
	came       uint64 // how many numbers have arrived, without duplicates
	duplicates int64
	reordered  int64
	seen       [behind / 64]uint64 // one bit each for the numbers next-behind to next-1, at the number modulo behind
}

// take counts the arrival of number n and reports whether it is new.
func (s *sequence) take(n uint64) bool {
	if n >= s.next {
		// The numbers from next to n-1 are missing until they arrive.
		if n-s.next >= behind {
			clear(s.seen[:])
		} else {
			for i := s.next; i < n; i++ {
				s.seen[i%behind/64] &^= 1 << (i % 64)
			}
		}
		s.seen[n%behind/64] |= 1 << (n % 64)
		s.next = n + 1
		s.came++
		return true
	}
	bit := uint64(1) << (n % 64)
	// A datagram that is too late counts as a duplicate, because it cannot be told from one. So the
	// count of lost datagrams may be too high, but never too low.
	if s.next-n > behind || s.seen[n%behind/64]&bit != 0 {
		s.duplicates++
		return false
	}
	s.seen[n%behind/64] |= bit
	s.came++
	s.reordered++
	return true
}

// lost returns how many datagrams have not arrived. sent is the sender's count; 0 if not known.
// Then only numbers up to the highest that has arrived count.
func (s *sequence) lost(sent uint64) int64 { return int64(max(s.next, sent)) - int64(s.came) }

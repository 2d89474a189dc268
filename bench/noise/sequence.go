// SPDX-License-Identifier: Apache-2.0

package noise

// behind is how late a datagram may arrive and still be distinguished from a duplicate: 0.7 s
// at 1 Gbit/s of 1472 bytes.
const behind = 1 << 16

// A sequence tracks the arrival of one flow's datagrams 0, 1, 2, ... The numbers may be forged,
// so no memory is allocated by them.
type sequence struct {
	next       uint64 // one after the highest that has arrived
	came       uint64 // number without duplicates
	duplicates int64
	reordered  int64
	seen       [behind / 64]uint64 // bits for next-behind to next-1, by number modulo behind
}

// take accounts for one number and reports whether it is new.
func (s *sequence) take(n uint64) bool {
	if n >= s.next {
		// Those between are missing until they arrive.
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
	// A datagram that is too old to be distinguished counts as a duplicate. Lost may then be
	// too high, but never too low.
	if s.next-n > behind || s.seen[n%behind/64]&bit != 0 {
		s.duplicates++
		return false
	}
	s.seen[n%behind/64] |= bit
	s.came++
	s.reordered++
	return true
}

// lost returns how many have not arrived, up to the highest that has arrived, or of the sent
// ones if their number is known.
func (s *sequence) lost(sent uint64) int64 { return int64(max(s.next, sent)) - int64(s.came) }

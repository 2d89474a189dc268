// SPDX-License-Identifier: Apache-2.0

package noise

// behind is how far a datagram may be overtaken and still be told from a
// duplicate: 0.7 s at a Gbit/s of 1472 bytes.
const behind = 1 << 16

// A sequence is what has come of one flow's datagrams 0, 1, 2, ... The numbers
// may be anybody's: nothing here is as large as they say.
type sequence struct {
	next       uint64 // after the highest that has come
	came       uint64 // without duplicates
	duplicates int64
	reordered  int64
	seen       [behind / 64]uint64 // of next-behind to next-1, a bit each, by number modulo behind
}

// take accounts for one number and says whether it is new.
func (s *sequence) take(n uint64) bool {
	if n >= s.next {
		// Those between are missing until they come.
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
	// One that is too old to be told counts as a duplicate: then something is
	// missing that may have come, and not the other way round.
	if s.next-n > behind || s.seen[n%behind/64]&bit != 0 {
		s.duplicates++
		return false
	}
	s.seen[n%behind/64] |= bit
	s.came++
	s.reordered++
	return true
}

// lost is how many of those up to the highest that came, or of the sent ones
// if that is known, have not come.
func (s *sequence) lost(sent uint64) int64 { return int64(max(s.next, sent)) - int64(s.came) }

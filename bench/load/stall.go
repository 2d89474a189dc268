// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"slices"

	"github.com/niclane/niclane/bench/stats"
)

const (
	// leastStall is the shortest stall that is recorded, ns. While a thread has a processor, it
	// needs far less between two readings of its clock: 1 to 10 µs, or 60 µs to copy inBytes.
	leastStall = 100e3
	// maxStalls is the largest number of stalls that are kept for each thread and step.
	maxStalls = 256
)

// stalls keeps the longest of a thread's stalls.
type stalls struct {
	kept []Stall
	left int64 // number of stalls that were not kept
}

func newStalls() stalls { return stalls{kept: make([]Stall, 0, maxStalls)} }

// add adds one stall. It is called at most a few times a second, and does not allocate.
func (s *stalls) add(from, ns int64) {
	if len(s.kept) < cap(s.kept) {
		s.kept = append(s.kept, Stall{from, ns})
		return
	}
	s.left++
	least := 0
	for i := range s.kept {
		if s.kept[i].Ns < s.kept[least].Ns {
			least = i
		}
	}
	if s.kept[least].Ns < ns {
		s.kept[least] = Stall{from, ns}
	}
}

// list returns the kept stalls in order of time, nil if there are none.
func (s *stalls) list() []Stall {
	if len(s.kept) == 0 {
		return nil
	}
	sortStalls(s.kept)
	return s.kept
}

func sortStalls(s []Stall) {
	slices.SortStableFunc(s, func(a, b Stall) int { return cmp.Compare(a.AtMono, b.AtMono) })
}

// addStalls adds the stalls of another thread or step.
func (r *Result) addStalls(o *Result) {
	r.StallsLeft += o.StallsLeft
	if len(o.Stalls) > 0 {
		r.Stalls = append(slices.Clip(r.Stalls), o.Stalls...)
		sortStalls(r.Stalls)
	}
}

// addArrivals adds, window by window, the sends of another thread that ran in parallel with r.
func (r *Result) addArrivals(o *Result) {
	if o.Gaps != nil {
		r.Gaps = stats.Merge(r.Gaps, o.Gaps)
	}
	r.Sends = slices.Clone(r.Sends)
	for i, n := range o.Sends {
		if i == len(r.Sends) {
			r.Sends = append(r.Sends, 0)
		}
		r.Sends[i] += n
	}
}

// now reads the clock. It records a stall if too much time has passed since the last reading or
// since the end of a sleep.
func (w *worker) now() int64 { return w.at(w.clock.Now()) }

func (w *worker) at(now int64) int64 {
	if now-w.seen > leastStall {
		w.stalled(now)
	}
	w.seen = now
	return now
}

func (w *worker) stalled(now int64) {
	// The part of the stall before the counted time is left out.
	if from := max(w.seen, w.counted); w.seen > 0 && from < w.end && now-from > leastStall {
		w.account.stalls.add(w.clock.Start()+from, now-from)
	}
}

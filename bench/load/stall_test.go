// SPDX-License-Identifier: Apache-2.0

package load

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/check"
)

// hog waits for begin and then takes a processor from all threads without SCHED_FIFO, for ns. It
// sends the CLOCK_MONOTONIC times between which it had the processor. Zeros mean that SCHED_FIFO was
// refused.
func hog(cpu int, begin <-chan bool, ns int64) <-chan [2]int64 {
	done := make(chan [2]int64, 1)
	go func() {
		err := (thread.Setup{CPUs: []int{cpu}, FIFO: 10}).Lock()
		<-begin
		if err != nil {
			done <- [2]int64{}
			return
		}
		clock := thread.StartClock()
		for clock.Now() < ns {
		}
		done <- [2]int64{clock.Start(), clock.Start() + clock.Now()}
	}()
	return done
}

// TestStallsAreSeen: if a thread loses its processor, the result says when and for how long,
// and the check of the arrivals finds that requests were sent together.
func TestStallsAreSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: no SCHED_FIFO")
	}
	cpus, err := thread.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	const length = 60e6
	for _, spin := range []int64{0, 1e9} {
		cpu := cpus[0]
		c := Config{Rate: 1000, Duration: 200e6, Window: 20e6, Timeout: 20e9, Spin: spin}
		c.CPUs = []int{cpu}
		reply := right(t, c)
		begin := make(chan bool)
		had := hog(cpu, begin, length)
		c.Address = fake(t, func(n int, key string) string {
			if n == 10 {
				close(begin)
			}
			return reply(key)
		})
		r := result(t, c)
		h := <-had
		if h[1] == 0 {
			t.Skip("SCHED_FIFO is refused")
		}
		// The generator's thread may have slept for up to 1 ms when hog took the processor.
		// Real-time throttling (sched(7)) may give it the processor for a moment.
		longest := Stall{}
		for i, s := range r.Stalls {
			if overlap := min(s.AtMono+s.Ns, h[1]) - max(s.AtMono, h[0]); overlap > length/4 && s.Ns > longest.Ns {
				longest = s
			}
			if i > 0 && s.AtMono < r.Stalls[i-1].AtMono {
				t.Errorf("spin %d: stall %d is not in order", spin, i)
			}
		}
		if longest.Ns == 0 {
			t.Errorf("spin %d: no stall between %d and %d: %v", spin, h[0], h[1], r.Stalls)
		}
		if len(check.Dispersion(check.Constant, r.Sends)) == 0 {
			t.Errorf("spin %d: %v sends in windows of 20 ms are no warning", spin, r.Sends)
		}
		if r.Gaps.Max() < length/4 || r.Gaps.Count() != r.Intended-1 {
			t.Errorf("spin %d: %d gaps of at most %d ns, want %d", spin, r.Gaps.Count(), r.Gaps.Max(), r.Intended-1)
		}
	}
}

// TestStallsAreBounded: the longest stalls are kept, and the others are counted.
func TestStallsAreBounded(t *testing.T) {
	s := newStalls()
	const more = 100
	if n := testing.AllocsPerRun(1, func() {
		s.kept, s.left = s.kept[:0], 0
		for i := range int64(maxStalls + more) {
			s.add(i, i+leastStall)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	kept := s.list()
	if s.left != more || len(kept) != maxStalls || kept[0].Ns != more+leastStall {
		t.Errorf("%d left out, %d kept from %+v on", s.left, len(kept), kept[0])
	}
	for i := range kept {
		if kept[i].AtMono != int64(i)+more {
			t.Fatalf("%d: %+v", i, kept[i])
		}
	}
	if s := newStalls(); s.list() != nil {
		t.Error("no stalls are no list")
	}
}

// TestStallsOfTheCountedTime: the part of a stall before the counted time is left out. A stall after
// the counted time is no stall.
func TestStallsOfTheCountedTime(t *testing.T) {
	c, _, err := Config{Address: "127.0.0.1:1", Rate: 1, Duration: 1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name               string
		seen, counted, end int64 // before now
		want               int64 // 0: no stall
	}{
		{"whole", 5e9, 10e9, 0, 5e9},
		{"cut", 5e9, 2e9, 0, 2e9},
		{"before", 5e9, 10e3, 0, 0},
		{"after", 5e9, 10e9, 6e9, 0},
		{"short", leastStall / 2, 10e9, 0, 0},
	} {
		const now = 20e9
		w := &worker{cfg: &c, clock: thread.StartClock(), account: newAccount(&c, 0, c.Duration)}
		w.seen, w.counted, w.end = now-tt.seen, now-tt.counted, now-tt.end+1
		if w.at(now) != now || w.seen != now {
			t.Errorf("%s: the clock is changed", tt.name)
		}
		got := w.account.stalls.list()
		switch {
		case tt.want == 0 && got != nil:
			t.Errorf("%s: %+v, want none", tt.name, got)
		case tt.want > 0 && (len(got) != 1 || got[0].Ns != tt.want || got[0].AtMono != w.clock.Start()+now-tt.want):
			t.Errorf("%s: %+v, want one of %d ns", tt.name, got, tt.want)
		}
	}
}

func TestMergeArrivals(t *testing.T) {
	one := func(sends []int64, stalls ...Stall) Result {
		r := Result{Mode: Open, Duration: 1e9, Latency: stats.NewHistogram(), Gaps: stats.NewHistogram(), Sends: sends,
			Stalls: stalls, StallsLeft: 1}
		r.Gaps.Record(5)
		return r
	}
	a, b := one([]int64{1, 2}, Stall{10, 1}, Stall{30, 1}), one([]int64{10, 20, 30}, Stall{20, 2})
	r, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int64{11, 22, 30}, r.Sends); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Stall{{10, 1}, {20, 2}, {30, 1}}, r.Stalls); d != "" {
		t.Error(d)
	}
	if r.Gaps.Count() != 2 || r.StallsLeft != 2 {
		t.Errorf("%d gaps, %d stalls left out, want 2 and 2", r.Gaps.Count(), r.StallsLeft)
	}
	if d := cmp.Diff([]int64{1, 2}, a.Sends); d != "" {
		t.Errorf("merging changed what was merged: %s", d)
	}
	// Steps have different rates: follow leaves out Sends and Gaps.
	if r := follow([]Result{a, b}); r.Sends != nil || r.Gaps != nil || len(r.Stalls) != 3 {
		t.Errorf("steps: %v, %v, %v", r.Sends, r.Gaps, r.Stalls)
	}
}

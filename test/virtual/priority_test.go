// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"math/rand/v2"
	"testing"
)

// Priorities of the two classes: HTB takes the class of a frame from them.
const (
	high = 1<<16 | 1
	low  = 1<<16 | 2
)

// twoClasses returns n frames. The given share of them is in the high class.
func twoClasses(n int, load, share float64, size sizer) []frame {
	r := rand.New(rand.NewPCG(1, 4))
	frames := poisson(r, n, load, size)
	for i := range frames {
		frames[i].priority = low
		if r.Float64() < share {
			frames[i].priority = high
		}
	}
	return frames
}

// serve returns when a server begins each frame if it serves the high class first and interrupts
// none.
func serve(frames []frame) []int64 {
	begins := make([]int64, len(frames))
	var waiting [2][]int
	free := 0.0
	for next := 0; ; {
		for ; next < len(frames) && float64(frames[next].due) <= free; next++ {
			class := frames[next].priority - high
			waiting[class] = append(waiting[class], next)
		}
		class := 0
		if len(waiting[0]) == 0 {
			class = 1
		}
		if len(waiting[class]) == 0 {
			if next == len(frames) {
				return begins
			}
			free = float64(frames[next].due)
			continue
		}
		i := waiting[class][0]
		waiting[class] = waiting[class][1:]
		begins[i] = int64(free)
		free += float64(frames[i].size) * nsPerByte
	}
}

// ofClass returns the mean wait of a class in seconds.
func ofClass(frames []frame, begins []int64, class uint32) (mean, stderr float64) {
	var f []frame
	var b []int64
	for i := range frames {
		if frames[i].priority == class {
			f, b = append(f, frames[i]), append(b, begins[i])
		}
	}
	return meanWait(f, b)
}

// TestServe checks the calculation against Cobham's formula for priorities that interrupt nothing.
func TestServe(t *testing.T) {
	for name, size := range map[string]sizer{"equal": equal, "exponential": exponential} {
		mean, square := moments(size)
		for _, load := range []float64{0.5, 0.7} {
			const share = 0.3
			frames := twoClasses(10_000_000, load, share, size)
			begins := serve(frames)
			residual := load / mean * square / 2
			for _, c := range []struct {
				class uint32
				want  float64
			}{{high, residual / (1 - share*load)}, {low, residual / (1 - share*load) / (1 - load)}} {
				got, stderr := ofClass(frames, begins, c.class)
				t.Logf("%s sizes, load %.1f, class %d: mean wait %.4f ms, standard error %.2f %%; theory %.4f", name, load,
					c.class&0xffff, got*1e3, 100*stderr/got, c.want*1e3)
				if differs(got, c.want) {
					t.Errorf("%s sizes, load %.1f, class %d: mean wait %.4f ms, theory %.4f", name, load, c.class&0xffff,
						got*1e3, c.want*1e3)
				}
			}
		}
	}
}

// TestPriority checks HTB's prio, which niclane sets for a lane's rank.
func TestPriority(t *testing.T) {
	if !inGuest(t) {
		return
	}
	wire(t, from)
	// The classes have next to no rate of their own, and no burst: both take all from the class above.
	run(t, `
tc qdisc add dev v0 root handle 1: htb default 2
tc class add dev v0 parent 1: classid 1:f htb rate 10mbit ceil 10mbit burst 1 cburst 1 quantum 1514
tc class add dev v0 parent 1:f classid 1:1 htb rate 8bit ceil 10mbit burst 1 cburst 1 quantum 1514 prio 0
tc class add dev v0 parent 1:f classid 1:2 htb rate 8bit ceil 10mbit burst 1 cburst 1 quantum 1514 prio 1
tc qdisc add dev v0 parent 1:1 pfifo limit 100000
tc qdisc add dev v0 parent 1:2 pfifo limit 100000`[1:])
	frames := twoClasses(40_000, 0.8, 0.3, exponential)
	begins := serve(frames)
	arrived := play(t, from, to, frames)
	for i, a := range arrived {
		if a < 0 {
			t.Fatalf("frame %d is lost", i)
		}
	}
	for _, class := range []uint32{high, low} {
		got, _ := ofClass(frames, arrived, class)
		want, _ := ofClass(frames, begins, class)
		t.Logf("class %d: mean wait %.6f ms, calculated %.6f", class&0xffff, got*1e3, want*1e3)
		if differs(got, want) {
			t.Errorf("class %d: mean wait %.6f ms, calculated %.6f", class&0xffff, got*1e3, want*1e3)
		}
	}
}

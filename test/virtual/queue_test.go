// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// The link of these tests. The slower it is, the less the clock's resolution matters, and it costs
// no real time.
const (
	bytesPerSecond = 10e6 / 8
	nsPerByte      = 1e9 / bytesPerSecond
)

// within is the largest relative difference between a mean and what it is compared with. The guest is
// compared with a calculation, and the calculation with a formula: both together are within 1 %.
const within = 0.005

// resolution is the largest difference in ns between one frame's arrival and its calculated time.
// A system call of the sender that fails costs 1 µs (docs/virtual.md), and the kernel counts bursts
// in ticks of 64 ns.
const resolution = 2000

// A sizer returns the size of the next frame in bytes.
type sizer func(*rand.Rand) int

func equal(*rand.Rand) int { return 1250 }

// exponential returns an exponential size with mean 500, drawn again until it is one that the wire
// takes. So it is not M/M/1; the Pollaczek-Khinchine formula with the moments of these sizes holds.
func exponential(r *rand.Rand) int {
	for {
		if n := int(math.Round(500 * r.ExpFloat64())); n >= 60 && n <= 1514 {
			return n
		}
	}
}

// moments returns the mean and the mean square of service times in seconds, by Monte Carlo.
func moments(size sizer) (mean, square float64) {
	const n = 4_000_000
	r := rand.New(rand.NewPCG(2, 2))
	for range n {
		s := float64(size(r)) / bytesPerSecond
		mean += s / n
		square += s * s / n
	}
	return mean, square
}

// poisson returns frames with Poisson arrivals at a load of the link.
func poisson(r *rand.Rand, n int, load float64, size sizer) []frame {
	mean, _ := moments(size)
	frames := make([]frame, n)
	at := 0.0
	for i := range frames {
		at += r.ExpFloat64() * mean / load * 1e9
		frames[i] = frame{due: int64(at), size: size(r)}
	}
	return frames
}

// lindley returns when a server that serves in order begins each frame, in ns.
func lindley(frames []frame, overhead int) []int64 {
	begins := make([]int64, len(frames))
	free := 0.0
	for i, f := range frames {
		begin := max(float64(f.due), free)
		begins[i], free = int64(begin), begin+float64(f.size+overhead)*nsPerByte
	}
	return begins
}

// meanWait returns the mean time between a frame's due time and its begin, in seconds, and the mean's
// standard error. Waits of neighbours depend on each other, so the error is that of batches.
func meanWait(frames []frame, begins []int64) (mean, stderr float64) {
	const batches = 50
	var sums [batches]float64
	size := len(frames) / batches
	for i := range size * batches {
		sums[i/size] += float64(begins[i]-frames[i].due) / 1e9 / float64(size)
	}
	for _, s := range sums {
		mean += s / batches
	}
	for _, s := range sums {
		stderr += (s - mean) * (s - mean) / batches / (batches - 1)
	}
	return mean, math.Sqrt(stderr)
}

// pollaczek returns the mean waiting time of M/G/1 in seconds (Pollaczek-Khinchine).
func pollaczek(load, mean, square float64) float64 {
	return load / mean * square / 2 / (1 - load)
}

func differs(got, want float64) bool { return !(math.Abs(got/want-1) <= within) } // also for NaN

// TestRecursion checks the tests' own calculation against the formula, with so many frames that the
// standard error is below 0.2 %. It needs no guest. The tests in guests then compare each frame with
// the calculation.
func TestRecursion(t *testing.T) {
	for name, size := range map[string]sizer{"equal": equal, "exponential": exponential} {
		mean, square := moments(size)
		for _, load := range []float64{0.3, 0.5, 0.7} {
			frames := poisson(rand.New(rand.NewPCG(1, 1)), 10_000_000, load, size)
			got, stderr := meanWait(frames, lindley(frames, 0))
			want := pollaczek(load, mean, square)
			t.Logf("%s sizes, load %.1f: mean wait %.4f ms, standard error %.2f %%; theory %.4f", name, load, got*1e3,
				100*stderr/got, want*1e3)
			if differs(got, want) {
				t.Errorf("%s sizes, load %.1f: mean wait %.4f ms, theory %.4f", name, load, got*1e3, want*1e3)
			}
		}
	}
}

// A link is a way to make a link of the tests' rate.
type link struct {
	name, from, to string
	script         string   // makes it, on a wire of veth
	parameters     []string // of the guest's kernel
	equal          bool     // only frames of equal sizes
	overhead       int      // bytes that the link counts more of each frame
}

var links = []link{
	// A bucket of one frame: a frame begins when the one before it has left. With frames of several
	// sizes a short frame would leave credit.
	{name: "tbf", from: from, to: to, equal: true,
		script: "tc qdisc add dev v0 root tbf rate 10mbit burst 1250 limit 100000000"},
	{name: "htb", from: from, to: to, script: `
tc qdisc add dev v0 root handle 1: htb default 1
tc class add dev v0 parent 1: classid 1:1 htb rate 10mbit ceil 10mbit burst 1 cburst 1 quantum 1514
tc qdisc add dev v0 parent 1:1 pfifo limit 1000000`[1:]},
	// The card counts 24 bytes more of each frame, as Ethernet does.
	{name: "card", from: bed.Dev, to: bed.Wire, script: "tc qdisc add dev sim0 root pfifo limit 1000000", overhead: 24,
		parameters: []string{"simcard.queues=1", "simcard.speed=10", "simcard.burst_us=0"}},
}

// TestWait checks waiting times at links: of each frame against the calculation, and the mean against
// the formula.
func TestWait(t *testing.T) {
	for _, l := range links {
		for name, size := range map[string]sizer{"M/D/1": equal, "M/G/1": exponential} {
			if l.equal && name != "M/D/1" {
				continue
			}
			t.Run(fmt.Sprintf("%s_%c", l.name, name[2]), func(t *testing.T) {
				if inGuest(t, l.parameters...) {
					wait(t, l, name, size)
				}
			})
		}
	}
}

func wait(t *testing.T, l link, name string, size sizer) {
	wire(t, l.from)
	if l.script != "" {
		run(t, l.script)
	}
	for i, load := range []float64{0.3, 0.5, 0.7} {
		frames := poisson(rand.New(rand.NewPCG(uint64(i), 3)), 20_000, load, size)
		begins, worst := lindley(frames, l.overhead), int64(0)
		arrived := play(t, l.from, l.to, frames)
		for i, a := range arrived {
			if a < 0 {
				t.Fatalf("load %.1f: frame %d is lost", load, i)
			}
			worst = max(worst, a-begins[i], begins[i]-a)
		}
		got, _ := meanWait(frames, arrived)
		want, stderr := meanWait(frames, begins)
		t.Logf("%s, load %.1f: mean wait %.6f ms, calculated %.6f, standard error %.1f %%; a frame differs by at most %d ns",
			name, load, got*1e3, want*1e3, 100*stderr/want, worst)
		if differs(got, want) || worst > resolution {
			t.Errorf("%s, load %.1f: mean wait %.6f ms, calculated %.6f; a frame begins %d ns beside its time", name, load,
				got*1e3, want*1e3, worst)
		}
	}
}

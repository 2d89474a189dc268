// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/statstest"
)

// want checks that each warning contains the text at the same place in pieces.
func want(t *testing.T, name string, got []Warning, pieces ...string) {
	t.Helper()
	if len(got) != len(pieces) {
		t.Errorf("%s: %d warnings, want %d: %v", name, len(got), len(pieces), got)
		return
	}
	for i, w := range got {
		if !strings.Contains(w.Text, pieces[i]) {
			t.Errorf("%s: %q, want %q in it", name, w.Text, pieces[i])
		}
		if _, err := json.Marshal(w); err != nil || w.Check == "" {
			t.Errorf("%s: %+v: %v", name, w, err)
		}
	}
}

func TestLittle(t *testing.T) {
	want(t, "right", Little(64, 12_800, 5e6))
	want(t, "4 % off", Little(64, 12_800, 5.2e6))
	// Numbers of the Aerospike paper: 2556 in flight, 15.3 M/s at 190.8 µs, and 8.6 M/s at 234.9 µs.
	want(t, "on", Little(2556, 15.3e6, 190_800), "Little's law: 15300000 requests/s × 190.8µs mean latency are "+
		"2919.2 in flight, but 2556.0 were (+14 %): latency includes")
	want(t, "off", Little(2556, 8.6e6, 234_949),
		"2020.6 in flight, but 2556.0 were (-21 %): latency leaves something out")
}

func TestSaturated(t *testing.T) {
	latency := statstest.Filled(100_000, func(i int) int64 { return 100e3 + int64(i) })
	quick := statstest.Equal(100_000, 2e3)
	// One request in 500 is late by half a millisecond.
	late := statstest.Filled(100_000, func(i int) int64 {
		if i%500 == 0 {
			return 500e3
		}
		return 2e3
	})
	c := Client{Own: quick, Latency: latency, CPUTime: 5e8, Duration: 1e9}
	want(t, "fine", Saturated(c))
	c.Own = late
	want(t, "late", Saturated(c), "P99.9 is the generator's own delay: it noticed requests 500.2",
		"P99.99 is the generator's own delay")
	c.Own, c.CPUTime = quick, 95e7
	want(t, "busy", Saturated(c), "the generator used 95 % of its processor")
	c.Spins = true
	want(t, "spinning", Saturated(c))
	want(t, "nothing measured", Saturated(Client{}))
}

func TestCounters(t *testing.T) {
	equal := []Count{{"gets", 1000, 1000}, {"sets", 0, 0}}
	want(t, "equal", Counters(equal, 0))
	want(t, "within", Counters([]Count{{"bytes", 1000, 1001}}, 0.01))
	// rpc-perf 3.2.0 was told to send 4:1 and sent 1:1.
	want(t, "other mix", Counters([]Count{{"gets", 8000, 5003}, {"sets", 2000, 4997}, {"hits", 8000, 8000},
		{"keys", 0, 7}}, 0.01),
		"gets: the client counted 8000, the server 5003 (-37 %)",
		"sets: the client counted 2000, the server 4997 (+1.5e+02 %)", "keys: the client counted 0, the server 7:")
}

func TestHostNoise(t *testing.T) {
	quiet := CPU{CPU: 0, Late: statstest.Equal(2000, 5e3), Busy: 1e7, Total: 1e9}
	loud := CPU{CPU: 3, Late: statstest.Filled(2000, func(i int) int64 { return int64(i) * 1e3 }), Steal: 5e7,
		Busy: 3e8, Total: 1e9}
	want(t, "quiet", HostNoise(Host{CPUs: []CPU{quiet}, Autogroup: "on"}, 99, 100e3))
	want(t, "loud", HostNoise(Host{CPUs: []CPU{quiet, loud}, Autogroup: "on", Others: []string{"cc1", "ld"}}, 99,
		100e3),
		"cpu 3 wakes a thread that only sleeps 1.979", "the hypervisor took 5.0 % of cpu 3",
		"other processes used 30 % of cpu 3, most of it cc1, ld", "sched_autogroup is on")
	loud.Steal, loud.Busy = 0, 0
	want(t, "too few wake-ups", HostNoise(Host{CPUs: []CPU{loud}}, 99.9, 100e3),
		"late (at worst); the effect at P99.9 is 100µs")
	want(t, "large effect", HostNoise(Host{CPUs: []CPU{loud}}, 99, 10e6))
	want(t, "no wake-ups", HostNoise(Host{CPUs: []CPU{{}}}, 99, 10e6))
}

// gapsOf returns the gaps between n sends. gap returns the intended gaps, late the delay of each
// send.
func gapsOf(n int, gap func() float64, late func(i int) float64) *stats.Histogram {
	h := stats.NewHistogram()
	due, last := 0.0, 0.0
	for i := range n {
		due += gap()
		at := max(due+late(i), last)
		h.Record(int64(at - last))
		last = at
	}
	return h
}

func TestGaps(t *testing.T) {
	const rate, mean = 10_000, 1e5
	rng := rand.New(rand.NewPCG(1, 1))
	poisson := func() float64 { return rng.ExpFloat64() * mean }
	constant := func() float64 { return mean }
	punctual := func(int) float64 { return rng.Float64() * 2e3 }
	// The generator sleeps for 20 ms in every 50 ms. Then it sends a burst.
	pausing := func(i int) float64 {
		if i%500 < 200 {
			return float64(200-i%500) * mean
		}
		return 0
	}
	want(t, "Poisson", Gaps(Poisson, rate, gapsOf(50_000, poisson, punctual)))
	want(t, "constant", Gaps(Constant, rate, gapsOf(50_000, constant, punctual)))
	want(t, "Poisson, pausing", Gaps(Poisson, rate, gapsOf(50_000, poisson, pausing)),
		"not exponential with mean 100µs")
	want(t, "constant, pausing", Gaps(Constant, rate, gapsOf(50_000, constant, pausing)),
		"of 50000 gaps between sends are more than 10 % off 100µs")
	want(t, "constant for Poisson", Gaps(Poisson, rate, gapsOf(50_000, constant, punctual)), "distance 0.6")
	want(t, "exactly constant for Poisson",
		Gaps(Poisson, rate, gapsOf(50_000, constant, func(int) float64 { return 0 })), "distance 0.63")
	want(t, "Poisson for constant", Gaps(Constant, rate, gapsOf(50_000, poisson, punctual)), "92.")
	want(t, "half the rate", Gaps(Poisson, rate/2, gapsOf(50_000, poisson, punctual)), "distance 0.2")
	want(t, "too few", Gaps(Poisson, rate, gapsOf(50, constant, punctual)))
}

// TestGapsOfPoisson checks that a true Poisson process gets no warning, with any number of gaps.
func TestGapsOfPoisson(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	bad := 0
	for range 200 {
		bad += len(Gaps(Poisson, 1000, gapsOf(200, func() float64 { return rng.ExpFloat64() * 1e6 },
			func(int) float64 { return 0 })))
	}
	if bad > 6 {
		t.Errorf("%d of 200 Poisson processes were called something else; 2 would be right", bad)
	}
}

func TestDispersion(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	// counts returns the numbers of a Poisson process in n windows. If bunched, all requests of two
	// windows are sent in one of them.
	counts := func(n int, mean float64, bunched bool) (list []int64) {
		for i := range n {
			k, sum := int64(-1), 0.0
			for ; sum < mean; k++ {
				sum += rng.ExpFloat64()
			}
			if bunched && i%10 == 0 {
				k = 0
			}
			list = append(list, k)
		}
		return list
	}
	want(t, "Poisson", Dispersion(Poisson, counts(300, 1000, false)))
	want(t, "stalls", Dispersion(Poisson, counts(300, 1000, true)),
		"sends of 300 windows have an index of dispersion of 10")
	want(t, "constant", Dispersion(Constant, []int64{3, 4, 3, 3, 4, 3, 3, 4, 3, 3, 4, 3}))
	want(t, "constant for Poisson", Dispersion(Poisson, []int64{30, 31, 30, 30, 31, 30, 30, 31, 30, 30, 31, 30}),
		"index of dispersion of 0.01")
	want(t, "Poisson for constant", Dispersion(Constant, counts(300, 1000, false)), "for constant arrivals")
	want(t, "too few", Dispersion(Poisson, []int64{1, 100}))
	want(t, "nothing sent", Dispersion(Poisson, make([]int64, 20)))
}

// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"math"
	"time"
)

// What a run takes beside its windows, ns: seen in the lab, and coarse.
const (
	raiseTime  = int64(3 * time.Second)        // the lab or the agents, and down again
	serverTime = int64(1 * time.Second)        // until the server answers
	laneTime   = int64(300 * time.Millisecond) // apply or roll back, about every second window
	settleTime = int64(700 * time.Millisecond) // noise before the warm-up and after the window
	startTime  = int64(200 * time.Millisecond) // of a generator
	prefillPer = int64(10 * time.Microsecond)  // of a key
	fetchPer   = int64(40)                     // of a byte, twice at 400 Mbit/s
	objectPer  = int64(time.Millisecond)       // of an object
)

// Lead is how far ahead, ns, the time is set at which several generators begin
// together: they have to be started and connected by then.
func Lead(connections int) int64 {
	return min(int64(250*time.Millisecond)+int64(connections)*int64(500*time.Microsecond), int64(10*time.Second))
}

// Points is the number of load points that Load gives: rates, or numbers of
// connections.
func Points(l Load) int {
	if l.Mode == Closed {
		return len(l.Connections)
	}
	return len(l.Rates)
}

// SearchSteps is how many rates a search tries per variant: halving the ratio
// of its bounds until it is the resolution, and the bounds themselves.
func SearchSteps(s Search) int {
	if s.From <= 0 || s.To <= s.From {
		return 1
	}
	halvings := math.Log2(math.Log(float64(s.To)/float64(s.From)) / math.Log1p(float64(s.Resolution)/1000))
	return 2 + max(0, int(math.Ceil(halvings)))
}

// Windows is how many windows a run measures at least and at most; those of
// its sweep are not among them.
func Windows(e *Experiment) (least, most int) {
	points := Points(e.Load)
	tried := 0
	if e.Search != nil {
		tried = SearchSteps(*e.Search)
		points += len(e.Search.LatencyAt)
	}
	n := len(e.Variants) * points
	return n*e.Repeats.Min + len(e.Variants)*tried, n*e.Repeats.Max + len(e.Variants)*tried*e.Repeats.Max
}

// Estimate is how long a run takes at least and at most, ns. It is shown before
// the run starts. Least is a bound from below, with what is known beforehand
// left out that may take no time; most is what the windows, and the rest as it
// is usually, add up to: a slow server or host takes longer.
func Estimate(e *Experiment) (least, most int64) {
	noisy := 0
	for _, v := range e.Variants {
		if v.Noise {
			noisy++
		}
	}
	window := e.Load.Warmup + e.Load.Window
	beside := laneTime + startTime
	if len(e.Variants) > 0 {
		beside += settleTime * int64(noisy) / int64(len(e.Variants))
	}
	if c := e.Load.Connections; e.Load.Generators > 1 && len(c) > 0 {
		sum := int64(0)
		for _, n := range c {
			sum += Lead(n)
		}
		beside += sum / int64(len(c))
	}
	n, m := Windows(e)
	least = int64(n)*window + 2*e.HostNoise.Window
	most = int64(m)*(window+beside) + 2*e.HostNoise.Window + raiseTime + serverTime
	if e.Workload.Prefill {
		fill := int64(e.Workload.Keys) * prefillPer
		for _, o := range e.Workload.Objects {
			if bytes := int64(o.Copies) * o.Bytes; !o.Uncached {
				fill += bytes*fetchPer + int64(o.Copies)*objectPer
			}
		}
		most += fill * int64(starts(e))
	}
	if n := starts(e); n > 1 {
		most += int64(n-1) * serverTime
	}
	if s := e.Sweep; s != nil {
		k := int64(len(s.Variants) * len(s.Noise) * max(1, len(s.SwitchBuffers)))
		least += k * (e.Load.Warmup + s.Window)
		most += k * (e.Load.Warmup + s.Window + laneTime + startTime + settleTime)
	}
	return least, most
}

// starts is how often the server is started: anew for each window where
// variants have servers of their own, but for those of one that follow on each
// other in the rounds A B, B A.
func starts(e *Experiment) int {
	other := false
	for _, v := range e.Variants {
		other = other || !v.SameServer(&e.Variants[0])
	}
	if !other {
		return 1
	}
	_, most := Windows(e)
	return most
}

// roundUp is a duration for people: whole seconds, minutes above an hour.
func roundUp(ns int64) string {
	unit := time.Second
	if ns > int64(time.Hour) {
		unit = time.Minute
	}
	d := time.Duration(ns)
	if rest := d % unit; rest != 0 {
		d += unit - rest
	}
	text := d.String()
	return text
}

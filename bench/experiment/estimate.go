// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"math"
	"time"

	"github.com/niclane/niclane/bench/stats"
)

// Times of a run outside its windows, ns: rough values from runs in the lab.
const (
	raiseTime  = int64(3 * time.Second)        // start of the lab or the agents, and their end
	serverTime = int64(1 * time.Second)        // until the server answers
	laneTime   = int64(300 * time.Millisecond) // apply or rollback, about every second window
	settleTime = int64(700 * time.Millisecond) // noise before the warm-up and after the window
	startTime  = int64(200 * time.Millisecond) // start of a generator
	prefillPer = int64(10 * time.Microsecond)  // per key
	fetchPer   = int64(40)                     // per byte, twice at 400 Mbit/s
	objectPer  = int64(time.Millisecond)       // per object
)

// Lead is how far ahead, ns, the common start time of several generators is set: until then
// they must be started and connected.
func Lead(connections int) int64 {
	return min(int64(250*time.Millisecond)+int64(connections)*int64(500*time.Microsecond), int64(10*time.Second))
}

// Points is the number of load points in Load: rates, or numbers of connections.
func Points(l Load) int {
	if l.Mode == Closed {
		return len(l.Connections)
	}
	return len(l.Rates)
}

// SearchSteps is how many rates a search tries per variant: the two bounds, and the steps that
// halve their ratio until it reaches the resolution.
func SearchSteps(s Search) int {
	if s.From <= 0 || s.To <= s.From {
		return 1
	}
	halvings := math.Log2(math.Log(float64(s.To)/float64(s.From)) / math.Log1p(float64(s.Resolution)/1000))
	return 2 + max(0, int(math.Ceil(halvings)))
}

// SearchWindow is the length of a search window at a rate, ns: as long as other windows, or
// longer if the SLA's percentile needs more requests. It adds a twentieth, because the number
// of arrivals is random.
func SearchWindow(e *Experiment, rate float64) int64 {
	if e.SLA == nil {
		return e.Load.Window
	}
	return max(e.Load.Window, int64(1.05*float64(stats.Needed(e.SLA.Percentile))/rate*float64(time.Second)))
}

// longer is the extra time of a search's windows, ns: at the lowest rate, and at the shares of
// it at which latency is measured.
func longer(e *Experiment) (sum int64) {
	s := e.Search
	for _, v := range e.Variants {
		if !s.Searches(v.Name) {
			continue
		}
		sum += int64(SearchSteps(*s)) * (SearchWindow(e, float64(s.From)) - e.Load.Window)
		for _, share := range s.LatencyAt {
			sum += SearchWindow(e, float64(s.From)*float64(share)/1000) - e.Load.Window
		}
	}
	return sum * int64(e.Repeats.Max)
}

// Windows is the least and the largest number of windows of a run, without those of its sweep.
func Windows(e *Experiment) (least, most int) {
	n := len(e.Variants) * Points(e.Load)
	tried := 0
	for _, v := range e.Variants {
		if e.Search.Searches(v.Name) {
			tried += SearchSteps(*e.Search)
			n += len(e.Search.LatencyAt)
		}
	}
	return n*e.Repeats.Min + tried, (n + tried) * e.Repeats.Max
}

// Estimate is the least and the largest time that a run takes, ns. It is shown before the run
// starts. least is a lower bound: it leaves out parts that may take no time. most is the
// windows plus usual times for the rest; a slow server or host takes longer. For a split server
// both count one instance; PerInstance is the time of each further one.
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
	most = int64(m)*(window+beside) + 2*e.HostNoise.Window + raiseTime + starting(e) + longer(e)
	if s := e.Sweep; s != nil {
		k := int64(sweeps(e))
		least += k * (e.Load.Warmup + s.Window)
		most += k * (e.Load.Warmup + s.Window + laneTime + startTime + settleTime)
	}
	return least, most
}

// PerInstance is the time that each further instance of a split server adds to most, ns.
// Instances are started, checked and filled one after the other at each start of the server.
// Their number depends on the hosts' NUMA nodes, which are not known beforehand. It is 0 for a
// server that is not split.
func PerInstance(e *Experiment) int64 {
	if e.Server.Split == "" {
		return 0
	}
	return starting(e)
}

// starting is the time of all starts of one instance, until it answers and is filled.
func starting(e *Experiment) int64 {
	once := serverTime
	if e.Workload.Prefill {
		once += int64(e.Workload.Keys) * prefillPer
		for _, o := range e.Workload.Objects {
			if bytes := int64(o.Copies) * o.Bytes; !o.Uncached {
				once += bytes*fetchPer + int64(o.Copies)*objectPer
			}
		}
	}
	return int64(starts(e)) * once
}

// sweeps is the number of windows of the sweep.
func sweeps(e *Experiment) int {
	s := e.Sweep
	if s == nil {
		return 0
	}
	return len(s.Variants) * len(s.Noise) * max(1, len(s.SwitchBuffers))
}

// starts is the largest number of starts of the server: one for each window if variants have
// different servers. It ignores that a server is kept if two successive windows use it, as in
// rounds A B, B A.
func starts(e *Experiment) int {
	other := false
	for _, v := range e.Variants {
		other = other || !v.SameServer(&e.Variants[0])
	}
	if !other {
		return 1
	}
	_, most := Windows(e)
	return most + sweeps(e)
}

// roundUp renders a duration for users: whole seconds, or minutes above an hour.
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

// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"math"
	"time"

	"github.com/niclane/niclane/bench/stats"
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

// SearchWindow is how long a window of the search lasts at a rate, ns: as long
// as the others, and so long that it has the requests that the percentile of the
// SLA needs, with a twentieth more, because how many arrive is left to chance.
func SearchWindow(e *Experiment, rate float64) int64 {
	if e.SLA == nil {
		return e.Load.Window
	}
	return max(e.Load.Window, int64(1.05*float64(stats.Needed(e.SLA.Percentile))/rate*float64(time.Second)))
}

// longer is what a search's windows may take beyond those of others, ns: at the
// lowest rate, and at the shares of it at which latency is measured.
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

// Windows is how many windows a run measures at least and at most; those of
// its sweep are not among them.
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

// Estimate is how long a run takes at least and at most, ns. It is shown before
// the run starts. Least is a bound from below, with what is known beforehand
// left out that may take no time; most is what the windows, and the rest as it
// is usually, add up to: a slow server or host takes longer. Of a server that is
// split it has one instance; what each further one adds is PerInstance.
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

// PerInstance is what each instance of a split server beyond the first adds to
// the most that a run takes, ns: they are started, asked and filled one after
// the other whenever the server is. How many there are, the hosts' NUMA nodes
// say, which are not known beforehand. 0 for a server that is not split.
func PerInstance(e *Experiment) int64 {
	if e.Server.Split == "" {
		return 0
	}
	return starting(e)
}

// starting is how long all starts of one instance take, until it answers and is
// filled.
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

// sweeps is how many windows the sweep has.
func sweeps(e *Experiment) int {
	s := e.Sweep
	if s == nil {
		return 0
	}
	return len(s.Variants) * len(s.Noise) * max(1, len(s.SwitchBuffers))
}

// starts is how often the server is started, at most: anew for each window
// where variants have servers of their own. That one is kept where it follows on
// itself, in the rounds A B, B A, is left out.
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

// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"math"
	"slices"
	"time"

	"github.com/niclane/niclane/bench/stats"
)

// Times of a run outside its windows, ns: rough values from runs in the lab.
const (
	raiseTime  = int64(3 * time.Second)        // start and end of the lab or the agents
	serverTime = int64(1 * time.Second)        // until the server answers
	laneTime   = int64(300 * time.Millisecond) // apply or rollback of lanes, about every second window
	settleTime = int64(700 * time.Millisecond) // noise before the warm-up and after the window
	startTime  = int64(200 * time.Millisecond) // start of a generator
	prefillPer = int64(10 * time.Microsecond)  // fill the server with one key
	fetchPer   = int64(40)                     // fetch one byte of an object twice, at 400 Mbit/s
	objectPer  = int64(time.Millisecond)       // additional time to fetch one object
)

// Lead returns how long before their common start time several generators are told to start, in ns.
// They start and connect in this time.
func (l *Load) Lead(connections int) int64 {
	paced := int64(0)
	if l.ConnectRate > 0 {
		paced = int64(connections) * int64(time.Second) / int64(l.ConnectRate)
	}
	return paced + min(int64(250*time.Millisecond)+int64(connections)*int64(500*time.Microsecond),
		int64(10*time.Second))
}

// Points returns the number of load points: of rates for an open loop, of numbers of connections
// for a closed one.
func Points(l Load) int {
	if l.Mode == Closed {
		return len(l.Connections)
	}
	return len(l.Rates)
}

// SearchSteps returns the number of rates that a search tries per variant. These are the two
// bounds, and one rate for each halving of the range (on a logarithmic scale) until it reaches the
// resolution.
func SearchSteps(s Search) int {
	if s.From <= 0 || s.To <= s.From {
		return 1
	}
	halvings := math.Log2(math.Log(float64(s.To)/float64(s.From)) / math.Log1p(float64(s.Resolution)/1000))
	return 2 + max(0, int(math.Ceil(halvings)))
}

// SearchWindow returns the length of a search window at a rate, in ns. It is Load.Window, or longer
// if the SLA's percentile needs more requests. The longer window has 5 % reserve, because the
// number of arrivals is random.
func SearchWindow(e *Experiment, rate float64) int64 {
	if e.SLA == nil {
		return e.Load.Window
	}
	return max(e.Load.Window, int64(1.05*float64(stats.Needed(e.SLA.Percentile))/rate*float64(time.Second)))
}

// longer returns the time, in ns, by which a search's windows are longer than Load.Window. It
// assumes that the search finds the lowest rate. Windows at the shares LatencyAt of that rate count
// too.
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

// Windows returns the least and the largest number of windows of a run, without the windows of its
// sweep.
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

// Estimate returns the least and the largest time that a run takes, in ns, to show before the run
// starts. least is a lower bound: it leaves out parts that may take no time. most is the time of
// the windows and the usual time of all other parts; a slow server or host takes longer. For a
// split server both count one instance; PerInstance is the time of each further one.
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
	if c := e.Load.Connections; (e.Load.Generators > 1 || e.Load.ConnectRate > 0) && len(c) > 0 {
		sum := int64(0)
		for _, n := range c {
			sum += e.Load.Lead(n)
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

// PerInstance returns the time, in ns, that each further instance of a server that is split over NUMA
// nodes adds to Estimate's most; 0 for another server. At each start of the server, instances are
// started, checked and filled one after the other. Their number depends on the hosts' NUMA nodes,
// which are not known in advance.
func PerInstance(e *Experiment) int64 {
	if e.Server.Split != SplitNUMA {
		return 0
	}
	return starting(e)
}

// starting returns the time of all starts of one instance, or of those of all cards, in ns. A start ends
// when the instance answers and is filled.
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
	if e.Server.Split == SplitCard && e.Hosts != nil {
		once *= int64(len(e.Hosts.SUT.Addresses()))
	}
	return int64(starts(e)) * once
}

// sweeps returns the number of windows of the sweep.
func sweeps(e *Experiment) int {
	s := e.Sweep
	if s == nil {
		return 0
	}
	return len(s.Variants) * len(s.Noise) * max(1, len(s.SwitchBuffers))
}

// starts returns the largest number of times that the server starts: once per window if the
// variants' servers differ. In fact there are fewer: two successive windows of one variant, as in
// rounds A B, B A, share a start.
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

// generatorRates are requests per second that one generator sends in a closed loop, by protocol: those
// of a second of its processor's time (docs/results/2026-11-measuring.md, "Cost of the generator").
var generatorRates = map[string]int{ProtocolAerospike: 70_000, ProtocolMemcached: 175_000}

// GeneratorsFor returns the number of generators that the highest rate of the load takes, with the rate
// and what one generator sends in a second. It returns zeros if the rate or the protocol's figure is
// not known.
func GeneratorsFor(e *Experiment) (generators, rate, each int) {
	rate = e.Load.Expect
	if len(e.Load.Rates) > 0 {
		rate = slices.Max(e.Load.Rates)
	}
	if each = generatorRates[e.Workload.Protocol]; each == 0 || rate == 0 {
		return 0, 0, 0
	}
	return (rate + each - 1) / each, rate, each
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

// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// A Result is the answer of a simulation. Rates are in bit/s, times in ns of virtual time.
type Result struct {
	// Virtual is always true: the times are exact, but have no work of processors in them.
	Virtual bool   `json:"virtual"`
	File    string `json:"file"`
	Link    uint64 `json:"linkBitsPerSecond"`
	Queues  int    `json:"queues"`
	// Noise is the share of the link that other traffic asks for in each direction.
	Noise  int   `json:"noisePermille"`
	Window int64 `json:"windowNs"`
	// PacketCost and WakeupCost are a model of processors; 0: work takes no time.
	PacketCost int64 `json:"packetCostNs,omitempty"`
	WakeupCost int64 `json:"wakeupCostNs,omitempty"`
	// Change says what the file changes.
	Change string `json:"change"`
	// Lanes are those of the file, in its order, and the default lane at the end.
	Lanes []LaneResult `json:"lanes"`
	// AsItIs and WithLanes are what all lanes share, without and with the file.
	AsItIs    Shared `json:"asItIs"`
	WithLanes Shared `json:"withLanes"`
	// Notes say what of the file is not simulated. LeavesOut says what no simulation has.
	Notes     []Note   `json:"notes"`
	LeavesOut []string `json:"leavesOut"`
	// Warnings are those of the run.
	Warnings []string `json:"warnings"`
}

// A LaneResult is what a lane's requests got, without and with the file.
type LaneResult struct {
	Lane
	// AsItIs and WithLanes are absent for a lane that gets no requests.
	AsItIs    *Side `json:"asItIs,omitempty"`
	WithLanes *Side `json:"withLanes,omitempty"`
}

// A Side is what one lane got in one variant.
type Side struct {
	Requests int64 `json:"requests"`
	// Unanswered are requests without an answer, or with a late or wrong one.
	Unanswered int64 `json:"unanswered"`
	// Latency of requests, by percentile; a percentile is absent if there are too few requests.
	P50  int64 `json:"p50Ns,omitempty"`
	P90  int64 `json:"p90Ns,omitempty"`
	P99  int64 `json:"p99Ns,omitempty"`
	P999 int64 `json:"p999Ns,omitempty"`
	// Class is the lane's own queue on the host; absent without lanes.
	Class *Hop `json:"class,omitempty"`
	// Sends is the payload that the lane sent: answers, bulk, and other traffic of the default lane.
	Sends int64 `json:"sendsBitsPerSecond"`
}

// Shared is what all lanes share in one variant.
type Shared struct {
	// Card are the card's transmit rings, Switch is the switch's port toward the host.
	Card   Hop `json:"card"`
	Switch Hop `json:"switch"`
	// NoiseIn and NoiseOut are the payload of other traffic that arrived.
	NoiseIn  int64 `json:"noiseInBitsPerSecond"`
	NoiseOut int64 `json:"noiseOutBitsPerSecond"`
	// Retransmits are segments that other traffic sent again.
	Retransmits uint64 `json:"retransmits"`
	// Busy is the share of virtual time, in permille, in which the processor of virtual time was not
	// idle. It has little to do with a host's: only clock reads and failing system calls take time.
	Busy int `json:"busyPermille"`
}

// A Hop is a queue on the way. Wait is how long a packet waits behind its backlog at the link's rate.
type Hop struct {
	MeanWait int64  `json:"meanWaitNs"`
	P99Wait  int64  `json:"p99WaitNs"`
	MaxWait  int64  `json:"maxWaitNs"`
	Drops    uint64 `json:"drops"`
}

// leavesOut is what a simulation does not have.
func (s *Setup) leavesOut() []string {
	if s.PacketCost > 0 || s.WakeupCost > 0 {
		return append([]string{"processors, but for " + result.CostText(s.PacketCost, s.WakeupCost)}, always...)
	}
	return append([]string{"processor time: work takes no time here, so what pollers, interrupts, cpus and NUMA " +
		"change does not show"}, always...)
}

// always is what no simulation has.
var always = []string{
	"the host's own fq_codel and byte queue limits: where it has them, the host as it is waits less for its card",
	"the application: requests of 64 bytes stand for it",
}

// Answer reads the answer from the result of the setup's experiment.
func (s *Setup) Answer(file string, r *result.Result) (*Result, error) {
	out := &Result{Virtual: true, File: file, Link: s.Link, Queues: s.Queues, Noise: s.Noise, Change: s.change(),
		PacketCost: s.PacketCost, WakeupCost: s.WakeupCost, Notes: s.Notes, LeavesOut: s.leavesOut(),
		Warnings: r.Warnings}
	for _, l := range s.Lanes {
		out.Lanes = append(out.Lanes, LaneResult{Lane: l})
	}
	windows := map[string]*result.Window{}
	for i := range r.Windows {
		windows[r.Windows[i].Variant] = &r.Windows[i]
	}
	for _, name := range []string{AsItIs, WithLanes} {
		w := windows[name]
		if w == nil {
			return nil, fmt.Errorf("simulate: the run has no window of variant %s", name)
		}
		out.Window = w.Load.Duration
		shared := sharedOf(w)
		if name == AsItIs {
			out.AsItIs = shared
		} else {
			out.WithLanes = shared
		}
		for i := range out.Lanes {
			l := &out.Lanes[i]
			side, err := sideOf(w, l.Name, i == len(out.Lanes)-1, shared)
			if err != nil {
				return nil, err
			}
			if name == AsItIs {
				l.AsItIs = side
			} else {
				l.WithLanes = side
			}
		}
	}
	return out, nil
}

func sharedOf(w *result.Window) (s Shared) {
	for _, h := range w.Hops {
		switch h.Name {
		case result.HopSwitch:
			s.Switch = hopOf(h)
		case result.HopCard:
			s.Card = hopOf(h)
		}
	}
	if m := w.Machine; m != nil && m.Duration > 0 {
		var idle int64
		for _, c := range m.CPUs {
			idle += c.Idle
		}
		s.Busy = int(max(0, 1000-idle*1000/m.Duration))
	}
	for _, n := range w.Noise {
		s.Retransmits += n.Sender.Retransmits
		if n.Direction == experiment.ToSUT {
			s.NoiseIn += n.Achieved
		} else {
			s.NoiseOut += n.Achieved
		}
	}
	return s
}

func hopOf(h result.Hop) Hop {
	out := Hop{Drops: h.Drops}
	if h.Rate > 0 {
		wait := func(bytes float64) int64 { return int64(bytes * 8e9 / float64(h.Rate)) }
		out.MeanWait, out.MaxWait = wait(h.Bytes.Mean()), wait(float64(h.Bytes.Max()))
		out.P99Wait = wait(float64(h.Bytes.ValueAt(99)))
	}
	return out
}

// sideOf returns what a lane got in a window; nil: it got no requests.
func sideOf(w *result.Window, lane string, isDefault bool, shared Shared) (*Side, error) {
	l, bulk := w.Load, (*load.Result)(nil)
	class := result.HopDefaultClass
	if !isDefault {
		found := false
		for _, p := range w.Probes {
			if p.Name == lane {
				l, bulk, found = p.Load, p.Bulk, true
			}
		}
		if !found {
			return nil, nil
		}
		class = result.HopClass + lane
	}
	s := &Side{Requests: l.Intended, Unanswered: l.Unanswered + l.TimedOut + l.Errors + l.Misses}
	for _, p := range []struct {
		at float64
		to *int64
	}{{50, &s.P50}, {90, &s.P90}, {99, &s.P99}, {99.9, &s.P999}} {
		if v, err := stats.Percentile(l.Latency, p.at); err == nil {
			*p.to = v
		}
	}
	for _, h := range w.Hops {
		if h.Name == class {
			x := hopOf(h)
			s.Class = &x
		}
	}
	if l.Duration <= 0 {
		return nil, fmt.Errorf("simulate: lane %s: no time was counted", lane)
	}
	bits := func(r *load.Result) int64 { return int64(float64(r.Payload) * 8e9 / float64(r.Duration)) }
	s.Sends = bits(&l)
	if bulk != nil {
		s.Sends += bits(bulk)
	}
	if isDefault {
		s.Sends += shared.NoiseOut
	}
	return s, nil
}

// change says in one sentence what the file changes.
func (s *Setup) change() string {
	n := len(s.Lanes) - 1
	var parts []string
	for i := 0; i < n; {
		j := i + 1 // lanes from i to j have the same
		for j < n && s.Lanes[j].gets(true) == s.Lanes[i].gets(true) {
			j++
		}
		var names []string
		for _, l := range s.Lanes[i:j] {
			names = append(names, l.Name)
		}
		parts = append(parts, strings.Join(names, ", ")+" "+s.Lanes[i].gets(j-i > 1))
		i = j
	}
	own := s.Lanes[n]
	return fmt.Sprintf("The file gives %s. All other traffic (%s) keeps %s.", strings.Join(parts, "; "),
		intent.DefaultLane, own.gets(false))
}

// gets says what a lane has of the card and of the link.
func (l *Lane) gets(each bool) string {
	text := fmt.Sprintf("%d queues", l.Queues)
	if l.Queues == 1 {
		text = "1 queue"
	}
	if each {
		text += " each"
	}
	text += fmt.Sprintf(", rank %d", l.Rank)
	if l.Guarantee != "" {
		text += ", at least " + l.Guarantee
	}
	if l.Ceiling != "" {
		text += ", at most " + l.Ceiling
	}
	return text
}

// head says on what the simulation ran.
func (r *Result) head() string {
	text := fmt.Sprintf("%s on %d queues and a link of %s. ", r.File, r.Queues, y.BitsText(r.Link))
	if r.Noise == 0 {
		return text + "There is no other traffic."
	}
	return text + fmt.Sprintf("Other traffic asks for %s of the link in each direction.", y.PermilleText(r.Noise))
}

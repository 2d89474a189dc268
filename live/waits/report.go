// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"time"
)

// Schema is the version of Report.
const Schema = "niclane.waits/1"

// A Report is a Snapshot or a window as a document. Times are in nanoseconds.
type Report struct {
	Schema string `json:"schema"` // Schema
	// Device is the device that was measured, "" for all.
	Device   string        `json:"device,omitempty"`
	At       time.Time     `json:"at"` // when the measurement ended
	Duration time.Duration `json:"duration"`
	// Followed is the part of Duration in which requests were followed.
	Followed time.Duration `json:"followed"`
	// SampleRate is the share of the time in which requests were followed at the end, 0 to 1. All counts
	// and distributions are of followed requests.
	SampleRate float64         `json:"sampleRate"`
	Cost       Cost            `json:"cost"`
	Lost       uint64          `json:"lost"` // requests and samples that the programs had no room for
	Services   []ServiceReport `json:"services"`
	// Notes say what this kernel or card does not show, and what was left out.
	Notes []string `json:"notes"`
}

// A ServiceReport is one service of a Report.
type ServiceReport struct {
	Target
	Processes []int  `json:"processes"` // that took requests and still run
	Requests  uint64 `json:"requests"`  // followed up to the driver
	Stamped   uint64 `json:"stamped"`   // of Requests: card-to-stack begins at the card's timestamp
	// Seen counts requests that were followed from their first data on. Pipelined counts data that
	// arrived before the answer to the previous request. Unpaired counts UDP requests without an answer.
	Seen      uint64 `json:"seen"`
	Pipelined uint64 `json:"pipelined"`
	Unpaired  uint64 `json:"unpaired"`
	// Unfinished counts the other requests without an end: those under way, those that were never answered, and
	// those that were cut off because the programs were detached. The distributions do not have them.
	Unfinished  uint64        `json:"unfinished"`
	Retransmits uint64        `json:"retransmits"` // TCP segments
	Drops       uint64        `json:"drops"`       // packets that this kernel dropped
	CPU         time.Duration `json:"cpu"`         // of the processes
	Waits       []WaitReport  `json:"waits"`       // in the order of the stages, host last
	// Verdict says in sentences what has most of the P99, and whether a lane shortens it.
	Verdict []string `json:"verdict"`
}

// A WaitReport is one stage of a service.
type WaitReport struct {
	Stage string `json:"stage"` // "card-to-stack", ..., "host"
	Percentiles
	// Buckets lists the occupied buckets of the histogram: the lowest value and the count.
	Buckets  [][2]uint64 `json:"buckets"`
	Culprits []Culprit   `json:"culprits"` // what was in front of requests above the threshold
}

// Report returns a snapshot as a document.
func (s Snapshot) Report(device string, notes ...string) Report {
	r := Report{Schema: Schema, Device: device, At: s.At, Duration: s.Duration, Followed: s.Followed,
		SampleRate: s.SampleRate, Cost: s.Cost,
		Lost: s.Lost, Notes: notes}
	r.Notes = append(r.Notes, s.Notes...)
	for st := range Stages {
		if why := s.Missing[st]; why != "" {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: %s", st, why))
		}
	}
	for _, x := range s.Services {
		y := ServiceReport{Target: x.Target, Processes: x.Processes, Requests: x.Requests, Stamped: x.Stamped,
			Seen: x.Seen, Pipelined: x.Pipelined, Unpaired: x.Unpaired, Retransmits: x.Retransmits, Drops: x.Drops,
			CPU: x.CPU, Unfinished: x.Unfinished, Verdict: x.Verdict()}
		for st := range Stages {
			if x.Waits[st].Count() == 0 && st != Host {
				continue
			}
			w := WaitReport{Stage: st.String(), Percentiles: x.Waits[st].Percentiles(), Culprits: x.Culprits[st]}
			x.Waits[st].Each(func(low, _ int64, n uint64) bool {
				w.Buckets = append(w.Buckets, [2]uint64{uint64(low), n})
				return true
			})
			y.Waits = append(y.Waits, w)
		}
		r.Services = append(r.Services, y)
	}
	return r
}

// SPDX-License-Identifier: Apache-2.0

// Package report holds the result of a comparison of variants and renders it:
// JSON for programs, a table for terminals, one self-contained HTML page.
//
// Everything printed is derived from the measured runs by Summarize; a
// rendering contains no number that result.json lacks. It refuses percentiles
// the sample cannot carry and claims the intervals do not allow (package
// stats), and loads nothing from a network.
package report

import (
	"time"

	"github.com/niclane/niclane/bench/hiccup"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/stats"
)

// Schema of result.json. The number grows with every incompatible change.
const Schema = "niclane.result/1"

// Names of the variants of the first measurement, in the order shown. Ratios
// are taken to Idle, the noise's own throughput is compared with NoLane.
const (
	Idle   = "idle"
	NoLane = "no lane"
	Lane   = "lane"
)

// Result is the content of result.json.
type Result struct {
	Schema  string    `json:"schema"`
	Title   string    `json:"title"`
	Command string    `json:"command"` // that reproduces it
	Started time.Time `json:"started"`
	Took    int64     `json:"tookNs"` // the comparison, without installing and building

	Environment Environment `json:"environment"`
	Setup       Setup       `json:"setup"`
	Variants    []Variant   `json:"variants"`
	// Runs in the order measured.
	Runs []Run `json:"runs"`
	// Hiccups of the host, measured before and after with nothing running.
	Hiccups []hiccup.Result `json:"hiccups"`
	Sweep   []SweepPoint    `json:"sweep,omitempty"`
	// Warnings of the orchestrator.
	Warnings []string `json:"warnings,omitempty"`
	// Summary is what Summarize derived.
	Summary *Summary `json:"summary,omitempty"`
}

// Environment is what somebody needs to judge or repeat the result.
type Environment struct {
	Niclane        string            `json:"niclane"` // version
	Kernel         string            `json:"kernel"`
	Distribution   string            `json:"distribution"`
	CPUModel       string            `json:"cpuModel"`
	CPUs           int               `json:"cpus"`
	Memory         int64             `json:"memoryBytes"`
	Virtualisation string            `json:"virtualisation,omitempty"`
	Governor       string            `json:"governor,omitempty"`
	Mitigations    map[string]string `json:"mitigations,omitempty"`
	Sysctls        map[string]string `json:"sysctls,omitempty"`
	Versions       map[string]string `json:"versions,omitempty"` // of memcached, Go, ...
	// Placement of what ran: the same in every variant, or named in Differences.
	Placement []Placement `json:"placement,omitempty"`
	// Config and Plan are the lane's file and niclane's plan for it, as text.
	Config string `json:"config,omitempty"`
	Plan   string `json:"plan,omitempty"`
}

// Placement says where a process or kernel thread ran.
type Placement struct {
	What  string `json:"what"` // "memcached", "generator", "NAPI threads of the lane"
	CPUs  []int  `json:"cpus"`
	Class string `json:"class,omitempty"` // "other", "fifo 50"
}

// Setup is what was fixed beforehand.
type Setup struct {
	LinkRate   int64   `json:"linkRateBitsPerSecond"` // of the finite link, each direction
	NoiseShare float64 `json:"noiseShare"`            // of LinkRate, 0 to 1
	Buffer     int64   `json:"bufferBytes"`           // of the switch port
	Repeats    int     `json:"repeats"`               // of each variant
	// Load is the generator's configuration (without what differs per run).
	Load load.Config `json:"load"`
	// Noise senders' configurations.
	Noise []noise.Config `json:"noise,omitempty"`
	// Goal is the highest lane/idle ratio of P50 and P99 that counts as met,
	// NoiseGoal the lowest share of its rate that the noise must keep.
	Goal      float64 `json:"goal"`
	NoiseGoal float64 `json:"noiseGoal"`
}

// Variant is one of the things compared.
type Variant struct {
	Name  string `json:"name"`
	Title string `json:"title"` // one line: what it is
	// Differences to the variant before it in the list, each in one line; the
	// first one names the baseline's tuning.
	Differences []string `json:"differences"`
}

// Run is one repeat of one variant.
type Run struct {
	Variant string `json:"variant"`
	Repeat  int    `json:"repeat"` // 0..; runs of equal Repeat are neighbours in time and form pairs
	// Load of the generator.
	Load load.Result `json:"load"`
	// Noise receivers', with its direction.
	Noise []NoiseRun `json:"noise,omitempty"`
	Hops  []Hop      `json:"hops,omitempty"`
	CPU   []CPUUse   `json:"cpu,omitempty"`
	// Warnings of this run; Load's and Noise's need not be repeated.
	Warnings []string `json:"warnings,omitempty"`
}

// NoiseRun is the noise of one direction: give the receiver's result as
// goodput, the sender's for retransmits and RTT.
type NoiseRun struct {
	Direction string       `json:"direction"` // "to the SUT", "from the SUT"
	Receiver  noise.Result `json:"receiver"`
	Sender    noise.Result `json:"sender"`
}

// A Hop is a place where packets queue.
type Hop struct {
	Name string `json:"name"` // "switch → SUT"
	// Reach is what a lane on the SUT can do about it.
	Reach Reach `json:"reach"`
	Rate  int64 `json:"rateBitsPerSecond"` // at which it drains, 0 unknown
	Limit int64 `json:"limitBytes"`        // of its buffer, 0 unknown
	// Backlog samples, evenly spaced in time. Packets may be nil.
	Bytes   *stats.Histogram `json:"bytes"`
	Packets *stats.Histogram `json:"packets,omitempty"`
	Drops   uint64           `json:"drops"`
}

// Reach of a lane.
type Reach string

// What a lane can do about the queue of a hop.
const (
	// ReachOwn: the lane's own queue, only its packets wait here.
	ReachOwn Reach = "the lane's own"
	// ReachHost: the host's queue for everything, or for the rest when there is a lane.
	ReachHost Reach = "on the host"
	// ReachNone: the queue is beyond the host, a lane cannot change it.
	ReachNone Reach = "out of reach"
)

// CPUUse is CPU time of a process, thread or processor.
type CPUUse struct {
	What string `json:"what"` // "memcached", "generator", "cpu0 softirq"
	Time int64  `json:"timeNs"`
	// Over is the time in which it was used, 0 for the counted time.
	Over int64 `json:"overNs,omitempty"`
}

// SweepPoint is one cell of the sweep over noise share and buffer.
type SweepPoint struct {
	Variant    string           `json:"variant"`
	NoiseShare float64          `json:"noiseShare"`
	Buffer     int64            `json:"bufferBytes"`
	Latency    *stats.Histogram `json:"latency"`
	NoiseRate  int64            `json:"noiseBitsPerSecond"` // both directions together
}

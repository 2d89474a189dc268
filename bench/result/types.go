// SPDX-License-Identifier: Apache-2.0

package result

import (
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/part/cache"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/search"
)

// Schema is the version of result.json. The number grows with every incompatible change.
const Schema = "niclane.result/2"

// A Result is one run of an experiment. Durations are in ns, rates of traffic
// in bit/s, sizes in bytes.
type Result struct {
	Schema  string    `json:"schema"`
	Title   string    `json:"title"`
	Niclane string    `json:"niclane"` // version that measured
	Started time.Time `json:"started"`
	Took    int64     `json:"tookNs"`
	// Partial is set if the run ended early. What is here was measured, and something is
	// missing.
	Partial *Partial `json:"partial,omitempty"`

	// Text is the experiment's file, and Experiment what was read from it.
	Text       string                 `json:"text"`
	Experiment *experiment.Experiment `json:"experiment"`

	Environment Environment `json:"environment"`
	Server      Server      `json:"server"`
	Variants    []Variant   `json:"variants"`
	Points      []Point     `json:"points"`
	// Windows in the order in which they were measured.
	Windows  []Window `json:"windows"`
	Searches []Search `json:"searches,omitempty"`
	// HostNoise is how late processors woke a thread that only slept, before and after the run.
	HostNoise []hiccup.Result `json:"hostNoise"`
	// Warnings of the run. Summarize derives those that follow from the numbers.
	Warnings []string `json:"warnings,omitempty"`
	// Logs are the last output of servers, by name, of a run that failed.
	Logs map[string]string `json:"logs,omitempty"`
}

// Partial is where a run ended, and why.
type Partial struct {
	Phase  string `json:"phase"` // "raise", "server", "repeats", ...
	Reason string `json:"reason"`
}

// Environment is what a reader needs to judge or repeat the result.
type Environment struct {
	Kernel         string            `json:"kernel"`
	Distribution   string            `json:"distribution,omitempty"`
	CPUModel       string            `json:"cpuModel,omitempty"`
	CPUs           int               `json:"cpus"`
	Memory         int64             `json:"memoryBytes,omitempty"`
	Virtualisation string            `json:"virtualisation,omitempty"`
	Governor       string            `json:"governor,omitempty"`
	Mitigations    map[string]string `json:"mitigations,omitempty"`
	Sysctls        map[string]string `json:"sysctls,omitempty"`
	Go             string            `json:"go"`
	Network        Network           `json:"network"`
	// Hosts that take part, the SUT first, if there are several. The fields above are the
	// SUT's.
	Hosts []Host `json:"hosts,omitempty"`
	// Cards of the hosts that take part. The lab's cards are emulated and say so.
	Cards []Card `json:"cards,omitempty"`
	// Versions of software other than the kernel, by name: "memcached", "openssl".
	Versions map[string]string `json:"versions,omitempty"`
	// Placement of processes and kernel threads: the same in every variant, or listed in the
	// variant's Differences.
	Placement []Placement `json:"placement,omitempty"`
}

// A Host is a machine with an agent.
type Host struct {
	Name     string `json:"name"`
	Role     string `json:"role"` // "sut", "client", "noise"
	Hostname string `json:"hostname,omitempty"`
	Kernel   string `json:"kernel"`
	CPUModel string `json:"cpuModel,omitempty"`
	CPUs     int    `json:"cpus"`
	// ClockAhead is how far its CLOCK_MONOTONIC was ahead of the orchestrator's when the run
	// began. The orchestrator's clock is the time axis of the windows. ClockUncertainty is the
	// uncertainty: half of a round trip.
	ClockAhead       int64 `json:"clockAheadNs"`
	ClockUncertainty int64 `json:"clockUncertaintyNs"`
	// Late is the wake-up delay of the worst of its processors, at the experiment's percentile,
	// before or after the run. Result.HostNoise has the SUT's in full.
	Late int64 `json:"lateNs,omitempty"`
}

// A Card is a network device and its driver, from ETHTOOL_GDRVINFO.
type Card struct {
	Host     string `json:"host"`
	Device   string `json:"device"`
	Driver   string `json:"driver,omitempty"`
	Version  string `json:"driverVersion,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Bus      string `json:"bus,omitempty"`
	Speed    int64  `json:"speedBitsPerSecond,omitempty"`
}

// Placement is where a process or a kernel thread ran.
type Placement struct {
	What  string `json:"what"` // "server", "generator"
	CPUs  []int  `json:"cpus"`
	Class string `json:"class,omitempty"` // "SCHED_FIFO 10", "softirq"
}

// Network is the link of the system under test.
type Network struct {
	Lab          string `json:"lab,omitempty"`
	Card         string `json:"card,omitempty"`
	Device       string `json:"device"`
	Queues       int    `json:"queues,omitempty"`
	MTU          int    `json:"mtu,omitempty"`
	LinkRate     int64  `json:"linkRateBitsPerSecond"`
	SwitchBuffer int    `json:"switchBufferBytes,omitempty"`
}

// Server is the server that was measured.
type Server struct {
	Kind    string   `json:"kind"`
	Version string   `json:"version,omitempty"`
	Command []string `json:"command,omitempty"`
	Address string   `json:"address"`
	// Instances are the server's if it is split over NUMA nodes, otherwise none.
	Instances []Instance `json:"instances,omitempty"`
	// Notes are remarks on how it is split.
	Notes []string `json:"notes,omitempty"`
	// Proof is how the workload is verified: "memcached stats", or why it is not.
	Proof string `json:"proof"`
}

// An Instance is the server's instance on a NUMA node.
type Instance struct {
	Node int `json:"node"`
	// CPUs on which it runs, and Mems, the nodes of its memory.
	CPUs    []int    `json:"cpus"`
	Mems    []int    `json:"mems"`
	Command []string `json:"command"`
}

// An InstanceWindow is an instance's share of a window.
type InstanceWindow struct {
	Node int `json:"node"`
	// Process is its resource use, disk reads included.
	Process machine.Process `json:"process"`
	// Cache is what its cache counted; nil: it was not read.
	Cache *cache.Counters `json:"cache,omitempty"`
}

// Arrival counts how an instance was chosen for connections, warm-up included: once for each
// first packet. A connection can have several first packets.
type Arrival struct {
	// Node counts those that went to the instance on the node where they arrived. Hash counts
	// those that the kernel's hash assigned.
	Node uint64 `json:"node"`
	Hash uint64 `json:"hash"`
}

// A Variant is a variant as it was measured.
type Variant struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Lanes is the lanes file that was applied, and Plan its steps, "" without lanes.
	Lanes string `json:"lanes,omitempty"`
	Plan  string `json:"plan,omitempty"`
	// ClientPlan is the same for a client's lanes; with several clients, the last one's.
	ClientPlan string `json:"clientPlan,omitempty"`
	// Differences are those to the variant before it, one line each. For the first variant,
	// they are the baseline's tuning.
	Differences []string `json:"differences,omitempty"`
}

// A Point is a load point.
type Point struct {
	Mode        string  `json:"mode"`                    // load.Open or load.Closed
	Rate        float64 `json:"ratePerSecond,omitempty"` // requested, for Open
	Connections int     `json:"connections"`
	// Rounds is the number of repeats of each variant. Stopped is why there were no more.
	Rounds  int    `json:"rounds"`
	Stopped string `json:"stopped,omitempty"`
}

// Purposes of a window.
const (
	Repeat    = "repeat"
	Searching = "search"
	Sweeping  = "sweep"
)

// A Window is the counted time of one repeat of one variant.
type Window struct {
	Purpose string `json:"purpose"`
	Variant string `json:"variant"`
	// Point is the index of the load point, and Repeat the number of the round from 0; for
	// purpose Repeat only.
	Point  int `json:"point"`
	Repeat int `json:"repeat"`
	// Rate is the requested rate per second, for open loops.
	Rate float64 `json:"ratePerSecond,omitempty"`
	// Sweep is the combination that was set, for purpose Sweeping.
	Sweep *Sweep `json:"sweep,omitempty"`

	Load  load.Result `json:"load"`
	Noise []Noise     `json:"noise,omitempty"`
	// Machine covers the time from the start of the generators to their end, warm-up included.
	Machine *machine.Diff  `json:"machine,omitempty"`
	Counts  []Count        `json:"counts,omitempty"`
	Power   []power.Result `json:"power,omitempty"`
	// Cache is what a cache counted in that time, and Origin what the origin behind it counted,
	// warm-up included; nil: not read.
	Cache  *cache.Counters `json:"cache,omitempty"`
	Origin *cache.Counters `json:"origin,omitempty"`
	// Instances are the instances of a server that is split over NUMA nodes, in the order of
	// Server.Instances. Machine and Cache have the sums.
	Instances []InstanceWindow `json:"instances,omitempty"`
	// Arrival is how connections were assigned to instances; nil if there is one.
	Arrival *Arrival `json:"arrival,omitempty"`
	// Hops are the queues on the way, sampled from the start of the generators to their end;
	// none if the site cannot read them.
	Hops []Hop `json:"hops,omitempty"`
	// Warnings of the run about this window.
	Warnings []string `json:"warnings,omitempty"`
}

// A Hop is a place where packets queue.
type Hop struct {
	Name string `json:"name"` // "switch → SUT"
	// Reach is whether a lane on the SUT can change it.
	Reach Reach `json:"reach"`
	Rate  int64 `json:"rateBitsPerSecond"` // rate at which it drains, 0: unknown
	Limit int64 `json:"limitBytes"`        // size of its buffer, 0: unknown
	// Bytes is the backlog, in samples evenly spaced in time.
	Bytes *stats.Histogram `json:"bytes"`
	Drops uint64           `json:"drops"`
}

// Reach is how far a lane can change the queue of a hop.
type Reach string

// Whether a lane can change the queue of a hop.
const (
	// ReachOwn: the lane's own queue, with only its packets.
	ReachOwn Reach = "the lane's own"
	// ReachHost: the host's queue for all packets, or for the packets without a lane.
	ReachHost Reach = "on the host"
	// ReachNone: the queue is outside the host; a lane cannot change it.
	ReachNone Reach = "out of reach"
)

// A Sweep is a combination that was measured once.
type Sweep struct {
	Noise        int   `json:"noisePermille"` // share of the link
	SwitchBuffer int64 `json:"switchBufferBytes"`
}

// Noise is one stream in addition to the load.
type Noise struct {
	Direction string `json:"direction"` // experiment.ToSUT or FromSUT
	// Asked is the requested payload rate. Achieved is the rate that arrived in the counted
	// time. Both in bit/s.
	Asked    int64        `json:"askedBitsPerSecond"`
	Achieved int64        `json:"achievedBitsPerSecond"`
	Sender   noise.Result `json:"sender"`
	Receiver noise.Result `json:"receiver"`
}

// Count is a counter that generator and server both have, over the same requests, warm-up
// included.
type Count struct {
	Name   string `json:"name"`
	Sent   int64  `json:"sent"`
	Served int64  `json:"served"`
}

// A Search is the search of one variant.
type Search struct {
	Variant string         `json:"variant"`
	Config  search.Config  `json:"config"`
	Result  *search.Result `json:"result"`
}

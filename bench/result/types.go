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

// Schema of result.json. The number grows with every incompatible change.
const Schema = "niclane.result/2"

// A Result is one run of an experiment. Durations are in ns, rates of traffic
// in bit/s, sizes in bytes.
type Result struct {
	Schema  string    `json:"schema"`
	Title   string    `json:"title"`
	Niclane string    `json:"niclane"` // version that measured
	Started time.Time `json:"started"`
	Took    int64     `json:"tookNs"`
	// Partial is set when the run ended before its end: what is here was
	// measured, and something is missing.
	Partial *Partial `json:"partial,omitempty"`

	// Text of the experiment's file, and what was read from it.
	Text       string                 `json:"text"`
	Experiment *experiment.Experiment `json:"experiment"`

	Environment Environment `json:"environment"`
	Server      Server      `json:"server"`
	Variants    []Variant   `json:"variants"`
	Points      []Point     `json:"points"`
	// Windows in the order in which they were measured.
	Windows  []Window `json:"windows"`
	Searches []Search `json:"searches,omitempty"`
	// HostNoise is what the processors did to a thread that only wanted to
	// wake up, before and after the run.
	HostNoise []hiccup.Result `json:"hostNoise"`
	// Warnings of the run; those that follow from the numbers are made by
	// Summarize.
	Warnings []string `json:"warnings,omitempty"`
	// Logs are what servers said at last, by name, of a run that failed.
	Logs map[string]string `json:"logs,omitempty"`
}

// Partial says where a run ended, and why.
type Partial struct {
	Phase  string `json:"phase"` // "raise", "server", "repeats", ...
	Reason string `json:"reason"`
}

// Environment is what somebody needs to judge or repeat the result.
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
	// Hosts that take part, the SUT first, where there are several; what is
	// above is the SUT's.
	Hosts []Host `json:"hosts,omitempty"`
	// Cards of the hosts that take part; the lab's are emulated and say so.
	Cards []Card `json:"cards,omitempty"`
	// Versions of what was used beside the kernel, by name: "memcached", "openssl".
	Versions map[string]string `json:"versions,omitempty"`
	// Placement of what ran: the same in every variant, or named in the
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
	// ClockAhead is how far its CLOCK_MONOTONIC was ahead of the
	// orchestrator's, which is the time axis of the windows, when the run
	// began, and ClockUncertainty how well that is known: half of a round trip.
	ClockAhead       int64 `json:"clockAheadNs"`
	ClockUncertainty int64 `json:"clockUncertaintyNs"`
	// Late is how late the worst of its processors woke a thread that only
	// wanted to wake up, at the experiment's percentile, before or after the
	// run. Result.HostNoise has the SUT's in full.
	Late int64 `json:"lateNs,omitempty"`
}

// A Card is a network device and what drives it, as ETHTOOL_GDRVINFO has it.
type Card struct {
	Host     string `json:"host"`
	Device   string `json:"device"`
	Driver   string `json:"driver,omitempty"`
	Version  string `json:"driverVersion,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Bus      string `json:"bus,omitempty"`
	Speed    int64  `json:"speedBitsPerSecond,omitempty"`
}

// Placement says where a process or a kernel thread ran.
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
	// Instances are the server's where it is split over NUMA nodes; none where
	// it is one.
	Instances []Instance `json:"instances,omitempty"`
	// Notes are what somebody should know of how it is split.
	Notes []string `json:"notes,omitempty"`
	// Proof is how the workload is proven: "memcached stats", or why it is not.
	Proof string `json:"proof"`
}

// An Instance is that of a NUMA node.
type Instance struct {
	Node int `json:"node"`
	// CPUs that it is kept to, and Mems, the nodes that its memory is from.
	CPUs    []int    `json:"cpus"`
	Mems    []int    `json:"mems"`
	Command []string `json:"command"`
}

// An InstanceWindow is an instance's share of a window.
type InstanceWindow struct {
	Node int `json:"node"`
	// Process is what it used, its disk reads among it.
	Process machine.Process `json:"process"`
	// Cache is what its cache counted; nil: it was not asked.
	Cache *cache.Counters `json:"cache,omitempty"`
}

// Arrival counts how an instance was chosen for connections, warm-up included:
// once for each first packet, of which a connection can have sent several.
type Arrival struct {
	// Node are those that went to the instance of the node where they arrived,
	// Hash those that the kernel's hash gave to any.
	Node uint64 `json:"node"`
	Hash uint64 `json:"hash"`
}

// A Variant as it was measured.
type Variant struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Lanes is the lanes file that was applied and Plan the steps that it took,
	// "" without lanes.
	Lanes string `json:"lanes,omitempty"`
	Plan  string `json:"plan,omitempty"`
	// ClientPlan is the same for a client's lanes, of several clients the last.
	ClientPlan string `json:"clientPlan,omitempty"`
	// Differences to the variant before it, each in one line; the first
	// variant's name the baseline's tuning.
	Differences []string `json:"differences,omitempty"`
}

// A Point is a load point.
type Point struct {
	Mode        string  `json:"mode"`                    // load.Open or load.Closed
	Rate        float64 `json:"ratePerSecond,omitempty"` // asked for, of Open
	Connections int     `json:"connections"`
	// Rounds are the repeats of each variant, and Stopped is why there were no
	// more.
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
	// Point is the index of the load point, and Repeat the number of the round
	// from 0; of purpose Repeat only.
	Point  int `json:"point"`
	Repeat int `json:"repeat"`
	// Rate per second that was asked for, of open loops.
	Rate float64 `json:"ratePerSecond,omitempty"`
	// Sweep says what was varied, of purpose Sweeping.
	Sweep *Sweep `json:"sweep,omitempty"`

	Load  load.Result `json:"load"`
	Noise []Noise     `json:"noise,omitempty"`
	// Machine is from the start of the generators to their end, warm-up
	// included.
	Machine *machine.Diff  `json:"machine,omitempty"`
	Counts  []Count        `json:"counts,omitempty"`
	Power   []power.Result `json:"power,omitempty"`
	// Cache is what a cache counted meanwhile, and Origin the origin behind it,
	// warm-up included; nil: it was not asked.
	Cache  *cache.Counters `json:"cache,omitempty"`
	Origin *cache.Counters `json:"origin,omitempty"`
	// Instances are what each instance of a server did that is split over NUMA
	// nodes, in the order of Server.Instances; Machine and Cache have the sums.
	Instances []InstanceWindow `json:"instances,omitempty"`
	// Arrival is how connections came to instances; nil where there is one.
	Arrival *Arrival `json:"arrival,omitempty"`
	// Hops are the queues on the way, sampled from the start of the generators
	// to their end. A site that cannot read them has none.
	Hops []Hop `json:"hops,omitempty"`
	// Warnings of the run about this window.
	Warnings []string `json:"warnings,omitempty"`
}

// A Hop is a place where packets queue.
type Hop struct {
	Name string `json:"name"` // "switch → SUT"
	// Reach is what a lane on the SUT can do about it.
	Reach Reach `json:"reach"`
	Rate  int64 `json:"rateBitsPerSecond"` // at which it drains, 0: unknown
	Limit int64 `json:"limitBytes"`        // of its buffer, 0: unknown
	// Bytes that waited, in samples evenly spaced in time.
	Bytes *stats.Histogram `json:"bytes"`
	Drops uint64           `json:"drops"`
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

// A Sweep is a combination that was measured once.
type Sweep struct {
	Noise        int   `json:"noisePermille"` // of the link
	SwitchBuffer int64 `json:"switchBufferBytes"`
}

// Noise is one stream beside the load.
type Noise struct {
	Direction string `json:"direction"` // experiment.ToSUT or FromSUT
	// Asked is the payload rate that was asked for, and Achieved the one that
	// arrived in the counted time, bit/s.
	Asked    int64        `json:"askedBitsPerSecond"`
	Achieved int64        `json:"achievedBitsPerSecond"`
	Sender   noise.Result `json:"sender"`
	Receiver noise.Result `json:"receiver"`
}

// Count is something that generator and server both counted, over the same
// requests, warm-up included.
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

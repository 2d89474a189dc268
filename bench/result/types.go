// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
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
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/device"
)

// Schema is the version of result.json. The number is incremented with every incompatible change.
const Schema = "niclane.result/2"

// A Result is one run of an experiment. Durations are in ns, rates of traffic in bit/s, sizes in
// bytes.
type Result struct {
	Schema  string `json:"schema"`
	Title   string `json:"title"`
	Niclane string `json:"niclane"` // version of niclane that measured
	// Trial is set if "niclane trial" measured the services' own traffic: there was no experiment's file
	// and no generator. Each load point is then a service.
	Trial   *Trial    `json:"trial,omitempty"`
	Started time.Time `json:"started"`
	Took    int64     `json:"tookNs"`
	// Virtual is set if the run was in virtual time: queueing and transmission are exact, work takes no
	// time, and processor time was not measured.
	Virtual bool `json:"virtual,omitempty"`
	// Partial is set if the run ended early. The result then has only what was measured before.
	Partial *Partial `json:"partial,omitempty"`

	// Text is the text of the experiment's file, Experiment its content.
	Text       string                 `json:"text"`
	Experiment *experiment.Experiment `json:"experiment"`

	Environment Environment `json:"environment"`
	Server      Server      `json:"server"`
	Variants    []Variant   `json:"variants"`
	Points      []Point     `json:"points"`
	// Windows are in the order in which they were measured.
	Windows  []Window `json:"windows"`
	Searches []Search `json:"searches,omitempty"`
	// HostNoise says how late processors woke a thread that only slept, before and after the run.
	HostNoise []hiccup.Result `json:"hostNoise"`
	// Warnings are those of the run itself. Summarize derives further ones from the numbers.
	Warnings []string `json:"warnings,omitempty"`
	// Logs are the last lines that servers wrote, by the server's name. Only a run that failed has
	// them.
	Logs map[string]string `json:"logs,omitempty"`
}

// VirtualText says what the figures of a run in virtual time are.
const VirtualText = "virtual time: queueing and transmission are exact, work takes no time; " +
	"processor time was not measured"

// CostText says what the model of processors is, for costs in ns.
func CostText(packet, wakeup int64) string {
	return fmt.Sprintf("a model of processors: each receive queue has one, which takes %s for a packet and %s before "+
		"the first if it slept", y.DurationText(packet), y.DurationText(wakeup))
}

// Partial says in which phase a run ended early, and why.
type Partial struct {
	Phase  string `json:"phase"` // "raise", "server", "repeats", ...
	Reason string `json:"reason"`
}

// Environment describes the machines and the software, so that a reader can judge or repeat the
// result.
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
	// Hardware is what the papers' tables list; nil in results of older versions.
	Hardware *device.Hardware `json:"hardware,omitempty"`
	// VirtualSeed is what the random numbers of a run in virtual time come from.
	VirtualSeed uint64  `json:"virtualSeed,omitempty"`
	Network     Network `json:"network"`
	// Hosts are the hosts that take part, if there are several, the SUT first. The fields above are
	// those of the SUT.
	Hosts []Host `json:"hosts,omitempty"`
	// Cards are the network cards of the hosts. The lab's cards are emulated, and their entries say
	// so.
	Cards []Card `json:"cards,omitempty"`
	// Versions of software other than the kernel, by name: "memcached", "openssl".
	Versions map[string]string `json:"versions,omitempty"`
	// Placement says where processes and kernel threads run. It is the same in every variant, except
	// for what a variant's Differences list.
	Placement []Placement `json:"placement,omitempty"`
}

// SocketCount returns the number of the SUT's sockets; 0: not known.
func (e Environment) SocketCount() int {
	if e.Hardware == nil {
		return 0
	}
	return e.Hardware.Sockets
}

// A Host is a machine with an agent.
type Host struct {
	Name     string `json:"name"`
	Role     string `json:"role"` // "sut", "client", "noise"
	Hostname string `json:"hostname,omitempty"`
	Kernel   string `json:"kernel"`
	CPUModel string `json:"cpuModel,omitempty"`
	CPUs     int    `json:"cpus"`
	// Hardware is as in Environment.
	Hardware *device.Hardware `json:"hardware,omitempty"`
	// ClockAhead is how far the host's CLOCK_MONOTONIC was ahead of that of the orchestrator (the
	// program that runs the experiment) when the run began. Times of windows are those of the
	// orchestrator's clock. ClockUncertainty is how wrong ClockAhead may be: half of a round trip.
	ClockAhead       int64 `json:"clockAheadNs"`
	ClockUncertainty int64 `json:"clockUncertaintyNs"`
	// Late is the wake-up delay of the worst processor, at the experiment's percentile, before or
	// after the run. For the SUT, Result.HostNoise has the whole measurement.
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

// Placement says where a process or a kernel thread ran.
type Placement struct {
	What  string `json:"what"` // "server", "generator"
	CPUs  []int  `json:"cpus"`
	Class string `json:"class,omitempty"` // scheduling class: "SCHED_FIFO 10", "softirq"
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
	// PacketCost and WakeupCost are a model of processors in virtual time: see CostText.
	PacketCost int64 `json:"packetCostNs,omitempty"`
	WakeupCost int64 `json:"wakeupCostNs,omitempty"`
}

// Server is the server that was measured.
type Server struct {
	Kind    string   `json:"kind"`
	Version string   `json:"version,omitempty"`
	Command []string `json:"command,omitempty"`
	Address string   `json:"address"`
	// Instances are the instances of a server that is split over NUMA nodes or cards; empty if it is not
	// split.
	Instances []Instance `json:"instances,omitempty"`
	// Notes are remarks on how the server is split.
	Notes []string `json:"notes,omitempty"`
	// Proof says how the run verifies the workload, such as "memcached stats", or why it does not.
	Proof string `json:"proof"`
}

// An Instance is the instance of a split server on one NUMA node.
type Instance struct {
	Node int `json:"node"` // -1 for a card on no known node
	// Device is the card that it serves; "": it serves all.
	Device string `json:"device,omitempty"`
	// CPUs are the processors on which it runs, Mems the NUMA nodes of its memory.
	CPUs    []int    `json:"cpus"`
	Mems    []int    `json:"mems"`
	Command []string `json:"command"`
}

// An InstanceWindow is what one instance did in a window.
type InstanceWindow struct {
	Node   int    `json:"node"`
	Device string `json:"device,omitempty"`
	// Process is the instance's use of resources, disk reads included.
	Process machine.Process `json:"process"`
	// Cache is what the instance's cache counted; nil: it was not read.
	Cache *cache.Counters `json:"cache,omitempty"`
}

// Arrival counts first packets of connections by how the kernel chose an instance for them, warm-up
// included. A connection can have several first packets.
type Arrival struct {
	// Node counts the first packets that went to the instance on the node where they arrived. Hash
	// counts those for which the kernel's hash chose the instance.
	Node uint64 `json:"node"`
	Hash uint64 `json:"hash"`
}

// A Variant is a variant of the experiment, as it was measured.
type Variant struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Lanes is the text of the lanes file that was applied, Plan the steps; both "" without lanes.
	Lanes string `json:"lanes,omitempty"`
	Plan  string `json:"plan,omitempty"`
	// ClientPlan is the steps for a client's lanes. If there are several clients, it is that of the
	// last.
	ClientPlan string `json:"clientPlan,omitempty"`
	// Differences are the differences from the variant before, one line each. For the first variant,
	// they are its tuning.
	Differences []string `json:"differences,omitempty"`
}

// A Point is a load point.
type Point struct {
	Mode string `json:"mode"` // load.Open, load.Closed, or Live
	// Service is the service of a trial's point, and Neighbour says that it is in none of the lanes.
	Service     string  `json:"service,omitempty"`
	Neighbour   bool    `json:"neighbour,omitempty"`
	Rate        float64 `json:"ratePerSecond,omitempty"` // requested rate, for Open
	Connections int     `json:"connections"`
	// Rounds is the number of repeats of each variant. Stopped is the reason why there were no more.
	Rounds  int    `json:"rounds"`
	Stopped string `json:"stopped,omitempty"`
}

// Purposes of a window.
const (
	Repeat    = "repeat"
	Searching = "search"
	Sweeping  = "sweep"
)

// A Window is one measurement of one variant, without the warm-up.
type Window struct {
	Purpose string `json:"purpose"`
	Variant string `json:"variant"`
	// Point is the index of the load point, and Repeat the number of the round, from 0. Both are for
	// purpose Repeat only.
	Point  int `json:"point"`
	Repeat int `json:"repeat"`
	// Rate is the requested rate per second, for open loops.
	Rate float64 `json:"ratePerSecond,omitempty"`
	// Sweep is the combination that was measured, for purpose Sweeping.
	Sweep *Sweep `json:"sweep,omitempty"`

	Load load.Result `json:"load"`
	// Probes are what the experiment's probes answered, in its order.
	Probes []Probe `json:"probes,omitempty"`
	Noise  []Noise `json:"noise,omitempty"`
	// Machine has the SUT's counters from the start of the generators to their end, warm-up included.
	Machine *machine.Diff  `json:"machine,omitempty"`
	Counts  []Count        `json:"counts,omitempty"`
	Power   []power.Result `json:"power,omitempty"`
	// Cache is what the cache counted in the time of Machine, and Origin what the origin server
	// counted; nil: not read.
	Cache  *cache.Counters `json:"cache,omitempty"`
	Origin *cache.Counters `json:"origin,omitempty"`
	// Instances are the instances of a split server, in the order of Server.Instances. Machine and
	// Cache are the sums over all instances.
	Instances []InstanceWindow `json:"instances,omitempty"`
	// Arrival says how connections were assigned to instances; nil for a server that is not split.
	Arrival *Arrival `json:"arrival,omitempty"`
	// Hops are the queues on the way, sampled from the start of the generators to their end. The list
	// is empty if the queues cannot be read.
	Hops []Hop `json:"hops,omitempty"`
	// Live is what a trial measured of the service in this window. Load has the requests, and as
	// latency their whole time in the host.
	Live *LiveWindow `json:"live,omitempty"`
	// Warnings are those of the run about this window.
	Warnings []string `json:"warnings,omitempty"`
}

// A Probe is what one of the experiment's probes answered in a window.
type Probe struct {
	Name string      `json:"name"`
	Load load.Result `json:"load"`
	// Bulk is the load of the probe's bulk; nil: it has none.
	Bulk *load.Result `json:"bulk,omitempty"`
}

// A Hop is a queue of packets on the way.
type Hop struct {
	Name string `json:"name"` // "switch → SUT"
	// Reach says whether a lane on the SUT can change the queue.
	Reach Reach `json:"reach"`
	Rate  int64 `json:"rateBitsPerSecond"` // rate at which the queue is emptied; 0: unknown
	Limit int64 `json:"limitBytes"`        // size of the queue's buffer; 0: unknown
	// Bytes has samples of the backlog, evenly spaced in time.
	Bytes *stats.Histogram `json:"bytes"`
	Drops uint64           `json:"drops"`
}

// Reach says how far a lane can change the queue of a hop.
type Reach string

// Values of Reach.
const (
	// ReachOwn is a queue of the lane, with only the lane's packets.
	ReachOwn Reach = "the lane's own"
	// ReachHost is a queue of the host, for all packets or for packets without a lane.
	ReachHost Reach = "on the host"
	// ReachNone is a queue outside the host. A lane cannot change it.
	ReachNone Reach = "out of reach"
)

// A Sweep is a combination of noise and switch buffer, measured once.
type Sweep struct {
	Noise        int   `json:"noisePermille"` // share of the link's rate
	SwitchBuffer int64 `json:"switchBufferBytes"`
}

// Noise is one stream of noise.
type Noise struct {
	Direction string `json:"direction"` // experiment.ToSUT or FromSUT
	// Asked is the requested payload rate. Achieved is the rate that arrived in the counted
	// time. Both in bit/s.
	Asked    int64        `json:"askedBitsPerSecond"`
	Achieved int64        `json:"achievedBitsPerSecond"`
	Sender   noise.Result `json:"sender"`
	Receiver noise.Result `json:"receiver"`
}

// Count is a number that generator and server both counted, over the same requests, warm-up
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

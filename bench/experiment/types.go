// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"slices"

	"github.com/niclane/niclane/bench/power"
)

// An Experiment is the content of a file, with defaults filled in. Durations
// are in ns, sizes in bytes, shares in permille.
type Experiment struct {
	// Source names the file, for messages. It is not part of the meaning.
	Source string `json:"source,omitempty"`
	Title  string `json:"title"`
	// Lab or Hosts, one of the two, is where it runs.
	Lab       *Lab      `json:"lab,omitempty"`
	Hosts     *Hosts    `json:"hosts,omitempty"`
	Server    Server    `json:"server"`
	Workload  Workload  `json:"workload"`
	Load      Load      `json:"load"`
	Noise     []Noise   `json:"noise,omitempty"`
	Placement Placement `json:"placement"`
	// Variants in the order of the file; their repeats are interleaved.
	Variants []Variant `json:"variants"`
	// Base names the variant that the others are compared with.
	Base    string  `json:"base"`
	Repeats Repeats `json:"repeats"`
	SLA     *SLA    `json:"sla,omitempty"`
	Search  *Search `json:"search,omitempty"`
	Sweep   *Sweep  `json:"sweep,omitempty"`
	Goals   []Goal  `json:"goals,omitempty"`
	// Power sources of the SUT. Empty: not measured.
	Power     []power.Config `json:"power,omitempty"`
	HostNoise HostNoise      `json:"hostNoise"`
	// Gates that every window has to pass; nil: none.
	Gates *Gating `json:"gates,omitempty"`
	// Sizes of the file, and Sized which of them are in it.
	Sizes *Sizes   `json:"sizes,omitempty"`
	Sized []string `json:"sized,omitempty"`
	// TimeLimit of the whole run.
	TimeLimit int64 `json:"timeLimitNs"`
}

// Lab is where an experiment runs on one machine; see package lab, whose
// defaults stand for zeros.
type Lab struct {
	Name         string `json:"name"`
	Card         string `json:"card,omitempty"`
	Queues       int    `json:"queues,omitempty"`
	LinkRate     uint64 `json:"linkRateBitsPerSecond,omitempty"`
	LinkBurst    int    `json:"linkBurstBytes,omitempty"`
	SwitchBuffer int    `json:"switchBufferBytes,omitempty"`
	Ring         int    `json:"ringBytes,omitempty"`
	Rules        int    `json:"rules,omitempty"`
	Contexts     int    `json:"contexts,omitempty"`
	MTU          int    `json:"mtu,omitempty"`
	NoiseSegment int    `json:"noiseSegmentBytes,omitempty"`
	SUTCPUs      []int  `json:"sutCPUs,omitempty"`
	OtherCPUs    []int  `json:"otherCPUs,omitempty"`
}

// Hosts are machines that run "niclane bench serve", from a hosts file.
type Hosts struct {
	SUT     Host   `json:"sut"`
	Clients []Host `json:"clients"`
	// Noise is nil where there is no noise.
	Noise *Host `json:"noise,omitempty"`
	// LinkRate of the SUT's port; 0: what the device says.
	LinkRate uint64 `json:"linkRateBitsPerSecond,omitempty"`
	// Authority, Certificate and Key are PEM files, relative to the
	// hosts file: who vouches for agents, and who this side is.
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// A Host is one machine.
type Host struct {
	// Name for messages: "sut", "noise", or the client's own.
	Name string `json:"name"`
	// Agent is where "niclane bench serve" listens, HOST:PORT.
	Agent string `json:"agent"`
	// ServerName is the name in the agent's certificate; "": the host of Agent.
	ServerName string `json:"serverName,omitempty"`
	// Address of the host in the measured network, without a port.
	Address string `json:"address"`
	// Device that lanes are on, of the SUT, and of clients that get some.
	Device string `json:"device,omitempty"`
	// CPUs of the server, the generators or the noise, nil: all that the agent
	// has; NoiseCPUs those of the noise's processes on the SUT.
	CPUs      []int `json:"cpus,omitempty"`
	NoiseCPUs []int `json:"noiseCPUs,omitempty"`
	// Generators on a client.
	Generators int `json:"generators,omitempty"`
	// Storage are directories of the SUT, by the NUMA node that their drives
	// are on: an instance of a split server has its node's.
	Storage map[int]string `json:"storage,omitempty"`
}

// Kinds of server.
const (
	KindMemcached = "memcached" // Debian's
	KindNiclane   = "niclane"   // niclane's own
	KindCommand   = "command"   // any program
	KindRunning   = "running"   // somebody else has started it
)

// Server is the system under test's application.
type Server struct {
	// Kind is one of the Kind constants.
	Kind string `json:"kind"`
	// Fallback is the kind that is measured instead, with a warning, where
	// KindMemcached is not installed; "": none.
	Fallback string `json:"fallback,omitempty"`
	// Command of KindCommand, program first. No shell reads it; Expand
	// replaces $address and the like.
	Command []string `json:"command,omitempty"`
	// Environment of the command, beyond PATH.
	Environment map[string]string `json:"environment,omitempty"`
	// Files of commands, their texts by path below $scratch, for Expand.
	Files map[string]string `json:"files,omitempty"`
	// Manifest of KindPod, a text for Expand.
	Manifest string `json:"manifest,omitempty"`
	// Certificate: the run makes one for the server, see the manual page.
	Certificate bool `json:"certificate,omitempty"`
	// Beside are further processes, started before the server in this order
	// and ended after it.
	Beside []Process `json:"beside,omitempty"`
	// Address to listen on; "": the SUT's.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port"`
	Threads int    `json:"threads"`
	// Memory for items and Connections at once, of KindMemcached and
	// KindNiclane.
	Memory      int64 `json:"memoryBytes,omitempty"`
	Connections int   `json:"connections,omitempty"`
	Ready       Ready `json:"ready"`
	// User that a command, and what is beside it on the SUT, runs as,
	// "NAME:GROUP"; "": the one that starts it.
	User string `json:"user,omitempty"`
	// Cache is where a cache counts what it has; nil: nobody looks.
	Cache *Cache `json:"cache,omitempty"`
	// Split is SplitNUMA, or "": one instance, wherever its processors are.
	Split string `json:"split,omitempty"`
}

// A Process is started beside the server.
type Process struct {
	Name    string   `json:"name"`
	Host    string   `json:"host"` // "sut", "client" or "noise"
	Command []string `json:"command"`
	// Port on which it has to listen before anything else is started; 0: it is
	// not waited for.
	Port int `json:"port,omitempty"`
	// Origin is niclane's own, in the place of Command.
	Origin bool `json:"origin,omitempty"`
}

// Ready says how a server is proven to answer.
type Ready struct {
	// Protocol to ask with, one of the Protocol constants or ProtocolTCP.
	Protocol string `json:"protocol"`
	// Path to ask for with HTTP.
	Path    string `json:"path,omitempty"`
	Timeout int64  `json:"timeoutNs"`
}

// Protocols of a workload.
const (
	ProtocolMemcached = "memcached"
	ProtocolHTTP      = "http"
	ProtocolHTTPS     = "https"
	ProtocolRESP      = "resp"
	ProtocolAerospike = "aerospike"
	// ProtocolTCP is for Ready only: a connection is opened.
	ProtocolTCP = "tcp"
)

// Workload is what is asked for.
type Workload struct {
	Protocol string `json:"protocol"`

	// Keys and what follows up to Namespace are those of key-value stores.
	Keys       int `json:"keys,omitempty"`
	KeyBytes   int `json:"keyBytes,omitempty"`
	ValueBytes int `json:"valueBytes,omitempty"`
	// Gets and Sets are the ratio of the two.
	Gets int `json:"gets,omitempty"`
	Sets int `json:"sets,omitempty"`
	// Distribution of the keys: "uniform".
	Distribution string `json:"distribution,omitempty"`
	Prefill      bool   `json:"prefill,omitempty"`
	Namespace    string `json:"namespace,omitempty"` // of Aerospike

	// Objects and what follows up to KeepAlive are those of HTTP.
	Objects []Object `json:"objects,omitempty"`
	// HostHeader; "": the server's address and port.
	HostHeader string `json:"hostHeader,omitempty"`
	TLS        *TLS   `json:"tls,omitempty"` // of HTTPS
	KeepAlive  bool   `json:"keepAlive,omitempty"`

	// LeastHits is the share of requests, in permille, that the server must
	// have had, by its own counters; 0: not looked at.
	LeastHits int `json:"leastHitsPermille,omitempty"`
}

// An Object of HTTP.
type Object struct {
	Path string `json:"path"`
	// Copies is how many objects there are; with more than one, each request
	// draws one and "$n" in Path stands for its number from 1.
	Copies int `json:"copies"`
	// Bytes that a whole answer has; another length is an error.
	Bytes int64 `json:"bytes"`
	// Uncached objects are those that the origin lets nobody keep.
	Uncached bool `json:"uncached,omitempty"`
	// Weight among the objects when they are drawn.
	Weight int `json:"weight"`
}

// TLS of the generator.
type TLS struct {
	Version string `json:"version"` // "1.2" or "1.3"
	// Authority is a PEM file that vouches for the server; "": the run's own
	// certificate with Server.Certificate, else nobody looks at it.
	Authority  string `json:"authority,omitempty"`
	ServerName string `json:"serverName,omitempty"` // "": HostHeader or address
}

// Modes of load.
const (
	Open   = "open"   // at intended times, whatever the server does
	Closed = "closed" // each connection sends when it has its answer
)

// Load is how it is asked for.
type Load struct {
	Mode string `json:"mode"`
	// Rates per second over all generators, one load point each; of Open.
	// Empty only with Search.
	Rates []int `json:"ratesPerSecond,omitempty"`
	// Arrivals of Open: "constant" or "poisson".
	Arrivals string `json:"arrivals,omitempty"`
	// Connections over all generators: one number of Open, one load point
	// each of Closed.
	Connections []int `json:"connections"`
	// Pipeline is how many requests may be outstanding on a connection; 0: no
	// limit, of Open.
	Pipeline int `json:"pipeline"`
	// Generators are processes; connections and rates are dealt out to them.
	Generators int `json:"generators"`
	// Spin is how long before an intended send a generator polls.
	Spin int64 `json:"spinNs,omitempty"`
	// Warmup comes before each window, which is counted; Timeout of a request.
	Warmup  int64 `json:"warmupNs"`
	Window  int64 `json:"windowNs"`
	Timeout int64 `json:"timeoutNs"`
}

// Directions of noise.
const (
	ToSUT   = "to-sut"
	FromSUT = "from-sut"
)

// Noise is bulk traffic beside the load.
type Noise struct {
	Direction string `json:"direction"`
	Protocol  string `json:"protocol"` // "tcp" or "udp"
	// Rate on the link, in bit/s or, where that is 0, in permille of it.
	BitsPerSecond uint64 `json:"bitsPerSecond,omitempty"`
	Share         int    `json:"sharePermille,omitempty"`
	Flows         int    `json:"flows"`
	Port          int    `json:"port"`
	// Segment is the MSS of TCP or the payload of UDP datagrams, 0: the
	// kernel's and what fits the MTU.
	Segment int `json:"segmentBytes,omitempty"`
	// Congestion control of TCP; "": the kernel's.
	Congestion string `json:"congestion,omitempty"`
}

// Placement is where processes run in every variant.
type Placement struct {
	Server    Place `json:"server"`
	Generator Place `json:"generator"`
	Noise     Place `json:"noise"`    // on the noise host
	SUTNoise  Place `json:"sutNoise"` // the noise's processes on the SUT
}

// A Place is processors, nil: the host's own, and a SCHED_FIFO priority, 0:
// SCHED_OTHER.
type Place struct {
	CPUs []int `json:"cpus,omitempty"`
	FIFO int   `json:"fifoPriority,omitempty"`
}

// A Variant differs from the others in what it says here, and in nothing else.
type Variant struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Noise bool   `json:"noise"`
	// Lanes is the text of a lanes file, for Expand; LanesFile the path of
	// one, taken as it is. At most one of the two; none: no lanes.
	Lanes     string `json:"lanes,omitempty"`
	LanesFile string `json:"lanesFile,omitempty"`
	// Force is globals.force of the lanes file, in its place.
	Force map[string]string `json:"force,omitempty"`
	// ClientLanes is the text of a lanes file for every client, as Lanes is
	// for the SUT.
	ClientLanes string `json:"clientLanes,omitempty"`
	// LanePolicy is the manifest of one, for Expand, that the cluster of KindPod
	// has in this variant.
	LanePolicy string `json:"lanePolicy,omitempty"`
	// Server and Tune are what is other at the server and its host; nil:
	// nothing.
	Server *VariantServer `json:"server,omitempty"`
	Tune   *Tune          `json:"tune,omitempty"`
}

// Repeats of each variant at each load point, in rounds A B C, C B A, B C A, ...
type Repeats struct {
	Min   int    `json:"min"`
	Max   int    `json:"max"`
	Until *Until `json:"until,omitempty"` // nil: Max repeats
}

// Until ends repeats when the interval of a percentile is this narrow, as a
// share of its value, in every variant.
type Until struct {
	Percentile float64 `json:"percentile"`
	Width      int     `json:"widthPermille"`
}

// SLA is the latency that a percentile may have.
type SLA struct {
	Percentile float64 `json:"percentile"`
	At         int64   `json:"atNs"`
}

// Search is for the highest rate that holds the SLA, the five-percent rule, or
// both.
type Search struct {
	From int `json:"fromPerSecond"`
	To   int `json:"toPerSecond"`
	// Resolution as a share of the rate.
	Resolution int `json:"resolutionPermille"`
	// FivePercentRule: a rate of which less than 95 % is achieved is too high.
	FivePercentRule bool `json:"fivePercentRule"`
	// Variants are the names of those that are searched, none for all.
	Variants []string `json:"variants,omitempty"`
	// LatencyAt are shares of the rate found at which latency is measured.
	LatencyAt []int `json:"latencyAtPermille"`
}

// Searches reports whether the highest rate of a variant is looked for.
func (s *Search) Searches(variant string) bool {
	return s != nil && (len(s.Variants) == 0 || slices.Contains(s.Variants, variant))
}

// Sweep measures one window at each combination of noise and buffer, after
// the repeats.
type Sweep struct {
	Variants []string `json:"variants"`
	// Noise are shares of the link, in permille, in the place of all rates of
	// Experiment.Noise.
	Noise []int `json:"noisePermille"`
	// SwitchBuffers of the lab; empty: as it is.
	SwitchBuffers []int64 `json:"switchBuffersBytes,omitempty"`
	Window        int64   `json:"windowNs"`
}

// Measures of a goal.
const (
	MeasureLatency = "latency" // Percentile of the latency
	MeasureRate    = "rate"    // achieved requests per second
	MeasureNoise   = "noise"   // achieved rate of the noise
)

// A Goal is fixed before anything is measured: the ratio of Variant to Base is
// at most AtMost, or at least AtLeast.
type Goal struct {
	Measure    string  `json:"measure"`
	Percentile float64 `json:"percentile,omitempty"`
	Variant    string  `json:"variant"`
	Base       string  `json:"base"`
	AtMost     float64 `json:"atMost,omitempty"`
	AtLeast    float64 `json:"atLeast,omitempty"`
}

// HostNoise is what the hosts may do to a thread that only wants to wake up.
type HostNoise struct {
	// Window of the measurement before and after the run.
	Window int64 `json:"windowNs"`
	// Percentile of the lateness that is to be at most AtMost; 0: whatever.
	Percentile float64 `json:"percentile"`
	AtMost     int64   `json:"atMostNs,omitempty"`
	// Refuse ends the run where it is more; else it is a warning.
	Refuse bool `json:"refuse,omitempty"`
}

// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"slices"

	"github.com/niclane/niclane/bench/power"
)

// An Experiment is the content of a file, with defaults filled in. Durations
// are in ns, sizes in bytes, shares in permille.
type Experiment struct {
	// Source is the name of the file, for messages. It has no effect.
	Source string `json:"source,omitempty"`
	Title  string `json:"title"`
	// Lab or Hosts, exactly one, is where the experiment runs.
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
	// Power sources of the SUT. Empty: power is not measured.
	Power     []power.Config `json:"power,omitempty"`
	HostNoise HostNoise      `json:"hostNoise"`
	// Gates that every window must pass; nil: none.
	Gates *Gating `json:"gates,omitempty"`
	// Sizes of the file. Sized are those that were applied.
	Sizes *Sizes   `json:"sizes,omitempty"`
	Sized []string `json:"sized,omitempty"`
	// TimeLimit of the whole run.
	TimeLimit int64 `json:"timeLimitNs"`
}

// Lab is the set-up of an experiment on one machine; see package lab, whose defaults replace
// zeros.
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
	// Authority, Certificate and Key are PEM files, relative to the hosts file: the authority
	// of the agents' certificates, and this side's own certificate and key.
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// A Host is one machine.
type Host struct {
	// Name for messages: "sut", "noise", or the client's own.
	Name string `json:"name"`
	// Agent is the HOST:PORT on which "niclane bench serve" listens.
	Agent string `json:"agent"`
	// ServerName is the name in the agent's certificate; "": the host of Agent.
	ServerName string `json:"serverName,omitempty"`
	// Address of the host in the measured network, without a port.
	Address string `json:"address"`
	// Device is the one that lanes are on: that of the SUT, and of clients that get lanes.
	Device string `json:"device,omitempty"`
	// CPUs of the server, the generators or the noise, nil: all that the agent has; NoiseCPUs
	// are those of the noise's processes on the SUT.
	CPUs      []int `json:"cpus,omitempty"`
	NoiseCPUs []int `json:"noiseCPUs,omitempty"`
	// Generators is the number of generators on a client.
	Generators int `json:"generators,omitempty"`
	// Storage are directories of the SUT, by the NUMA node of their drives. An instance of a
	// split server uses the one of its node.
	Storage map[int]string `json:"storage,omitempty"`
}

// Kinds of server.
const (
	KindMemcached = "memcached" // Debian's memcached
	KindNiclane   = "niclane"   // niclane's own server
	KindCommand   = "command"   // any program
	KindRunning   = "running"   // started by another program
)

// Server is the application on the system under test.
type Server struct {
	// Kind is one of the Kind constants.
	Kind string `json:"kind"`
	// Fallback is the kind that is measured instead, with a warning, if KindMemcached is not
	// installed; "": none.
	Fallback string `json:"fallback,omitempty"`
	// Command of KindCommand, program first. No shell interprets it. Expand replaces $address
	// and similar names.
	Command []string `json:"command,omitempty"`
	// Environment of the command, in addition to PATH.
	Environment map[string]string `json:"environment,omitempty"`
	// Files of commands: their texts by path below $scratch, for Expand.
	Files map[string]string `json:"files,omitempty"`
	// Manifest of KindPod, a text for Expand.
	Manifest string `json:"manifest,omitempty"`
	// Certificate says that the run makes a certificate for the server, see the manual page.
	Certificate bool `json:"certificate,omitempty"`
	// Beside are additional processes, started before the server in this order and ended after
	// it.
	Beside []Process `json:"beside,omitempty"`
	// Address on which the server listens; "": the SUT's.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port"`
	Threads int    `json:"threads"`
	// Memory for items, and the largest number of Connections, of KindMemcached and
	// KindNiclane.
	Memory      int64 `json:"memoryBytes,omitempty"`
	Connections int   `json:"connections,omitempty"`
	Ready       Ready `json:"ready"`
	// User that the command and its additional processes on the SUT run as, "NAME:GROUP"; "":
	// the user that starts it.
	User string `json:"user,omitempty"`
	// Cache is the place of a cache's counters; nil: they are not read.
	Cache *Cache `json:"cache,omitempty"`
	// Split is SplitNUMA, or "": one instance on all its processors.
	Split string `json:"split,omitempty"`
}

// A Process is an additional process, started before the server.
type Process struct {
	Name    string   `json:"name"`
	Host    string   `json:"host"` // "sut", "client" or "noise"
	Command []string `json:"command"`
	// Port on which it must listen before the next process starts; 0: the run does not wait for
	// it.
	Port int `json:"port,omitempty"`
	// Origin says that the process is niclane's own origin server, instead of Command.
	Origin bool `json:"origin,omitempty"`
}

// Ready is how the run proves that a server answers.
type Ready struct {
	// Protocol of the question, one of the Protocol constants or ProtocolTCP.
	Protocol string `json:"protocol"`
	// Path of the HTTP request.
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
	// ProtocolTCP, for Ready only, opens a connection.
	ProtocolTCP = "tcp"
)

// Workload is the requests of the load.
type Workload struct {
	Protocol string `json:"protocol"`

	// Keys and the fields up to Namespace are for key-value stores.
	Keys       int `json:"keys,omitempty"`
	KeyBytes   int `json:"keyBytes,omitempty"`
	ValueBytes int `json:"valueBytes,omitempty"`
	// Gets and Sets are the ratio of the two.
	Gets int `json:"gets,omitempty"`
	Sets int `json:"sets,omitempty"`
	// Distribution of the keys: "uniform".
	Distribution string `json:"distribution,omitempty"`
	Prefill      bool   `json:"prefill,omitempty"`
	Namespace    string `json:"namespace,omitempty"` // Aerospike only

	// Objects and the fields up to KeepAlive are for HTTP.
	Objects []Object `json:"objects,omitempty"`
	// HostHeader; "": the server's address and port.
	HostHeader string `json:"hostHeader,omitempty"`
	TLS        *TLS   `json:"tls,omitempty"` // HTTPS only
	KeepAlive  bool   `json:"keepAlive,omitempty"`

	// LeastHits is the least share of requests, in permille, that the server must have had by
	// its own counters; 0: not checked.
	LeastHits int `json:"leastHitsPermille,omitempty"`
}

// An Object is an HTTP object.
type Object struct {
	Path string `json:"path"`
	// Copies is the number of objects. With more than one, each request draws one, and "$n" in
	// Path is its number from 1.
	Copies int `json:"copies"`
	// Bytes is the length of a whole answer; another length is an error.
	Bytes int64 `json:"bytes"`
	// Uncached says that the origin forbids caching the object.
	Uncached bool `json:"uncached,omitempty"`
	// Weight of the object in the random choice.
	Weight int `json:"weight"`
}

// TLS is the TLS of the generator.
type TLS struct {
	Version string `json:"version"` // "1.2" or "1.3"
	// Authority is a PEM file with the authority of the server's certificate. "": the run's own
	// with Server.Certificate, else the certificate is not verified.
	Authority  string `json:"authority,omitempty"`
	ServerName string `json:"serverName,omitempty"` // "": HostHeader or address
}

// Modes of load.
const (
	Open   = "open"   // at intended times, whether or not the server answers
	Closed = "closed" // each connection sends its next request after the answer
)

// Load is how the requests are sent.
type Load struct {
	Mode string `json:"mode"`
	// Rates per second over all generators, one load point each; for Open. Empty only with
	// Search.
	Rates []int `json:"ratesPerSecond,omitempty"`
	// Arrivals of Open: "constant" or "poisson".
	Arrivals string `json:"arrivals,omitempty"`
	// Connections over all generators: one number for Open, one load point each for Closed.
	Connections []int `json:"connections"`
	// Pipeline is the largest number of outstanding requests per connection; 0: no limit, for
	// Open.
	Pipeline int `json:"pipeline"`
	// Generators is the number of processes. Connections and rates are divided among them.
	Generators int `json:"generators"`
	// Spin is how long before an intended send a generator polls.
	Spin int64 `json:"spinNs,omitempty"`
	// Warmup precedes each Window and is not counted. Timeout is that of a request.
	Warmup  int64 `json:"warmupNs"`
	Window  int64 `json:"windowNs"`
	Timeout int64 `json:"timeoutNs"`
}

// Directions of noise.
const (
	ToSUT   = "to-sut"
	FromSUT = "from-sut"
)

// Noise is bulk traffic in addition to the load.
type Noise struct {
	Direction string `json:"direction"`
	Protocol  string `json:"protocol"` // "tcp" or "udp"
	// Rate on the link, in bit/s or, if that is 0, in permille of the link.
	BitsPerSecond uint64 `json:"bitsPerSecond,omitempty"`
	Share         int    `json:"sharePermille,omitempty"`
	Flows         int    `json:"flows"`
	Port          int    `json:"port"`
	// Segment is the MSS of TCP or the payload of UDP datagrams. 0: the kernel's default for
	// TCP, the largest that fits the MTU for UDP.
	Segment int `json:"segmentBytes,omitempty"`
	// Congestion is TCP's congestion control; "": the kernel's default.
	Congestion string `json:"congestion,omitempty"`
}

// Placement is where processes run, in every variant.
type Placement struct {
	Server    Place `json:"server"`
	Generator Place `json:"generator"`
	Noise     Place `json:"noise"`    // on the noise host
	SUTNoise  Place `json:"sutNoise"` // the noise's processes on the SUT
}

// A Place is a set of processors (nil: the host's own) and a SCHED_FIFO priority (0:
// SCHED_OTHER).
type Place struct {
	CPUs []int `json:"cpus,omitempty"`
	FIFO int   `json:"fifoPriority,omitempty"`
}

// A Variant differs from the others only in its own fields.
type Variant struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Noise bool   `json:"noise"`
	// Lanes is the text of a lanes file, for Expand. LanesFile is the path of one, used
	// unchanged. At most one of the two is set; none: no lanes.
	Lanes     string `json:"lanes,omitempty"`
	LanesFile string `json:"lanesFile,omitempty"`
	// Force replaces globals.force of the lanes file.
	Force map[string]string `json:"force,omitempty"`
	// ClientLanes is the text of a lanes file for every client, as Lanes is for the SUT.
	ClientLanes string `json:"clientLanes,omitempty"`
	// LanePolicy is the manifest of a LanePolicy, for Expand, in the cluster of KindPod.
	LanePolicy string `json:"lanePolicy,omitempty"`
	// Server and Tune are the variant's changes of the server and its host; nil: none.
	Server *VariantServer `json:"server,omitempty"`
	Tune   *Tune          `json:"tune,omitempty"`
}

// Repeats of each variant at each load point, in rounds A B C, C B A, B C A, ...
type Repeats struct {
	Min   int    `json:"min"`
	Max   int    `json:"max"`
	Until *Until `json:"until,omitempty"` // nil: Max repeats
}

// Until ends the repeats when the interval of a percentile is this narrow, as a share of its
// value, in every variant.
type Until struct {
	Percentile float64 `json:"percentile"`
	Width      int     `json:"widthPermille"`
}

// SLA is the limit of a percentile of the latency.
type SLA struct {
	Percentile float64 `json:"percentile"`
	At         int64   `json:"atNs"`
}

// Search finds the highest rate that meets the SLA, the five-percent rule, or both.
type Search struct {
	From int `json:"fromPerSecond"`
	To   int `json:"toPerSecond"`
	// Resolution is a share of the rate, permille.
	Resolution int `json:"resolutionPermille"`
	// FivePercentRule: a rate is too high if less than 95 % of it is achieved.
	FivePercentRule bool `json:"fivePercentRule"`
	// Variants are the names of those that are searched; none: all.
	Variants []string `json:"variants,omitempty"`
	// LatencyAt are shares of the rate found at which latency is measured.
	LatencyAt []int `json:"latencyAtPermille"`
}

// Searches reports whether the search includes a variant.
func (s *Search) Searches(variant string) bool {
	return s != nil && (len(s.Variants) == 0 || slices.Contains(s.Variants, variant))
}

// Sweep measures one window at each combination of noise and buffer, after the repeats.
type Sweep struct {
	Variants []string `json:"variants"`
	// Noise are shares of the link, in permille. They replace all rates of Experiment.Noise.
	Noise []int `json:"noisePermille"`
	// SwitchBuffers of the lab; empty: unchanged.
	SwitchBuffers []int64 `json:"switchBuffersBytes,omitempty"`
	Window        int64   `json:"windowNs"`
}

// Measures of a goal.
const (
	MeasureLatency = "latency" // Percentile of the latency
	MeasureRate    = "rate"    // achieved requests per second
	MeasureNoise   = "noise"   // achieved rate of the noise
)

// A Goal is fixed before anything is measured: the ratio of Variant to Base is at most AtMost,
// or at least AtLeast.
type Goal struct {
	Measure    string  `json:"measure"`
	Percentile float64 `json:"percentile,omitempty"`
	Variant    string  `json:"variant"`
	Base       string  `json:"base"`
	AtMost     float64 `json:"atMost,omitempty"`
	AtLeast    float64 `json:"atLeast,omitempty"`
}

// HostNoise is the limit for the delay of a thread that only sleeps and wakes up.
type HostNoise struct {
	// Window is the length of the measurement before and after the run.
	Window int64 `json:"windowNs"`
	// Percentile of the lateness, which must be at most AtMost; 0: no limit.
	Percentile float64 `json:"percentile"`
	AtMost     int64   `json:"atMostNs,omitempty"`
	// Refuse ends the run if the limit is exceeded; otherwise it is a warning.
	Refuse bool `json:"refuse,omitempty"`
}

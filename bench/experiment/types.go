// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"slices"

	"github.com/niclane/niclane/bench/power"
)

// An Experiment is the content of a file, with defaults filled in. Durations are in ns, sizes in
// bytes, shares in permille.
type Experiment struct {
	// Source is the name of the file, for messages. It has no effect.
	Source string `json:"source,omitempty"`
	Title  string `json:"title"`
	// Lab or Hosts says where the experiment runs. Exactly one of them is set.
	Lab      *Lab     `json:"lab,omitempty"`
	Hosts    *Hosts   `json:"hosts,omitempty"`
	Server   Server   `json:"server"`
	Workload Workload `json:"workload"`
	Load     Load     `json:"load"`
	// Probes are further servers on the SUT, each with a load of its own at the same time.
	Probes    []Probe   `json:"probes,omitempty"`
	Noise     []Noise   `json:"noise,omitempty"`
	Placement Placement `json:"placement"`
	// Variants are in the order of the file. The run alternates between them.
	Variants []Variant `json:"variants"`
	// Base is the name of the variant with which the others are compared.
	Base    string  `json:"base"`
	Repeats Repeats `json:"repeats"`
	// SLA is the first of the file's SLAs: the one of the search and of the report's first sentence;
	// nil: none. MoreSLAs are the others. SLAs returns all of them.
	SLA      *SLA    `json:"sla,omitempty"`
	MoreSLAs []SLA   `json:"moreSLAs,omitempty"`
	Search   *Search `json:"search,omitempty"`
	Sweep    *Sweep  `json:"sweep,omitempty"`
	Goals    []Goal  `json:"goals,omitempty"`
	// Power are the sources that measure the SUT's power. Empty: power is not measured.
	Power     []power.Config `json:"power,omitempty"`
	HostNoise HostNoise      `json:"hostNoise"`
	// Gates are the conditions that every window must meet; nil: none.
	Gates *Gating `json:"gates,omitempty"`
	// Sizes are the file's sizes. Sized lists the sizes that were applied.
	Sizes *Sizes   `json:"sizes,omitempty"`
	Sized []string `json:"sized,omitempty"`
	// TimeLimit is the longest time of the whole run.
	TimeLimit int64 `json:"timeLimitNs"`
}

// Lab describes the lab for an experiment on one machine. Fields that are zero get the defaults of
// package lab.
type Lab struct {
	Name         string `json:"name"`
	Card         string `json:"card,omitempty"`
	Queues       int    `json:"queues,omitempty"`
	LinkRate     uint64 `json:"linkRateBitsPerSecond,omitempty"`
	LinkBurst    int    `json:"linkBurstBytes,omitempty"`
	SwitchBuffer int    `json:"switchBufferBytes,omitempty"`
	SwitchMark   int    `json:"switchMarkBytes,omitempty"`
	// SwitchFirst are DSCPs, as in a lanes file.
	SwitchFirst []string `json:"switchFirst,omitempty"`
	Delay       int64    `json:"delayNs,omitempty"`
	PacketCost  int64    `json:"packetCostNs,omitempty"`
	WakeupCost  int64    `json:"wakeupCostNs,omitempty"`
	Ring        int      `json:"ringBytes,omitempty"`
	Rules       int      `json:"rules,omitempty"`
	Contexts    int      `json:"contexts,omitempty"`
	MTU         int      `json:"mtu,omitempty"`
	// Frames says that the card's rings hold frames, not TSO units.
	Frames bool `json:"frames,omitempty"`
	// Addresses are further addresses of the SUT.
	Addresses    []string `json:"addresses,omitempty"`
	NoiseSegment int      `json:"noiseSegmentBytes,omitempty"`
	SUTCPUs      []int    `json:"sutCPUs,omitempty"`
	OtherCPUs    []int    `json:"otherCPUs,omitempty"`
}

// Cost returns the key of the lab's model of processors; "": it has none.
func (l *Lab) Cost() string {
	switch {
	case l.PacketCost > 0:
		return "packet-cost"
	case l.WakeupCost > 0:
		return "wakeup-cost"
	}
	return ""
}

// Hosts are the machines of a hosts file. Each of them runs "niclane bench serve".
type Hosts struct {
	SUT     Host   `json:"sut"`
	Clients []Host `json:"clients"`
	// Noise is the host of the noise; nil: no host.
	Noise *Host `json:"noise,omitempty"`
	// LinkRate is the rate of the SUT's port; 0: the rate that the device reports.
	LinkRate uint64 `json:"linkRateBitsPerSecond,omitempty"`
	// Power are the sources of the SUT's power, in place of the experiment's; empty: the experiment's.
	Power []power.Config `json:"power,omitempty"`
	// Authority, Certificate and Key are paths of PEM files, relative to the hosts file. Authority
	// signed the agents' certificates. Certificate and Key belong to the program that runs the
	// experiment.
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// A Host is one machine.
type Host struct {
	// Name is used in messages: "sut", "noise", or the client's own name.
	Name string `json:"name"`
	// Agent is the HOST:PORT on which "niclane bench serve" listens.
	Agent string `json:"agent"`
	// ServerName is the name in the agent's certificate; "": the host part of Agent.
	ServerName string `json:"serverName,omitempty"`
	// Address is the host's address in the measured network, without a port.
	Address string `json:"address"`
	// Device is the device that gets lanes. The SUT needs one, and each client if clients get lanes.
	Device string `json:"device,omitempty"`
	// Cards are the host's devices if it has several. Device and Address are then those of the first.
	// Bond is the bond whose slaves the cards are, with Address; "": each card has an address.
	Cards []Card `json:"cards,omitempty"`
	Bond  string `json:"bond,omitempty"`
	// CPUs are the processors of the server, the generators or the noise; nil: all that the agent has.
	// NoiseCPUs are the processors of the noise's processes on the SUT.
	CPUs      []int `json:"cpus,omitempty"`
	NoiseCPUs []int `json:"noiseCPUs,omitempty"`
	// Threads, Queues and Pollers replace those of Server, on the SUT; 0: they do not.
	Threads int `json:"threads,omitempty"`
	Queues  int `json:"queues,omitempty"`
	Pollers int `json:"pollers,omitempty"`
	// Generators is the number of generators on this host, if it is a client.
	Generators int `json:"generators,omitempty"`
	// Storage are directories of the SUT, by the NUMA node of their drives. Each instance of a split
	// server uses the directory of its node.
	Storage map[int]string `json:"storage,omitempty"`
}

// Kinds of server: which program it is.
const (
	KindMemcached = "memcached" // Debian's memcached
	KindNiclane   = "niclane"   // niclane's own server
	KindCommand   = "command"   // any program
	KindRunning   = "running"   // a server that another program has started
)

// Server is the application on the system under test.
type Server struct {
	// Kind is one of the Kind constants.
	Kind string `json:"kind"`
	// Fallback is the kind to measure, with a warning, if the kind is KindMemcached and memcached is
	// not installed; "": none.
	Fallback string `json:"fallback,omitempty"`
	// Command is the program and arguments of KindCommand. It runs without a shell. Expand replaces
	// names such as $address in it.
	Command []string `json:"command,omitempty"`
	// Environment has variables for the command, in addition to PATH.
	Environment map[string]string `json:"environment,omitempty"`
	// Files are texts by path in $scratch, for KindCommand. Expand replaces names in them.
	Files map[string]string `json:"files,omitempty"`
	// Manifest is the text of KindPod's manifest. Expand replaces names in it.
	Manifest string `json:"manifest,omitempty"`
	// Certificate says that the run makes a certificate for the server: see experiment.yaml(5).
	Certificate bool `json:"certificate,omitempty"`
	// Beside are additional processes. They start before the server, in this order, and end after it.
	Beside []Process `json:"beside,omitempty"`
	// Address is the address on which the server listens; "": the SUT's.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port"`
	Threads int    `json:"threads"`
	// Queues is the number of queues of the server's lane on each device; Pollers is the number of
	// threads that poll them.
	Queues  int `json:"queues,omitempty"`
	Pollers int `json:"pollers,omitempty"`
	// Memory is for items, and Connections is the largest number of connections. Both are for
	// KindMemcached and KindNiclane.
	Memory      int64 `json:"memoryBytes,omitempty"`
	Connections int   `json:"connections,omitempty"`
	Ready       Ready `json:"ready"`
	// User, as "NAME:GROUP", runs the command and its additional processes on the SUT; "": the user of
	// the program that starts them.
	User string `json:"user,omitempty"`
	// Cache says where a cache's counters are; nil: they are not read.
	Cache *Cache `json:"cache,omitempty"`
	// Split is SplitNUMA; "": one instance on all its processors.
	Split string `json:"split,omitempty"`
}

// A Process is an additional process, which starts before the server.
type Process struct {
	Name    string   `json:"name"`
	Host    string   `json:"host"` // "sut", "client" or "noise"
	Command []string `json:"command"`
	// Port is a port on which the process must listen before the next process starts; 0: the run does
	// not wait.
	Port int `json:"port,omitempty"`
	// Origin says that the process is niclane's own origin server, not Command.
	Origin bool `json:"origin,omitempty"`
}

// Ready says how the run checks that a server answers.
type Ready struct {
	// Protocol of the request: one of the Protocol constants or ProtocolTCP.
	Protocol string `json:"protocol"`
	// Path of the request, for HTTP.
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
	// ProtocolTCP, for Ready only, just opens a connection.
	ProtocolTCP = "tcp"
)

// Workload describes the requests that the load sends.
type Workload struct {
	Protocol string `json:"protocol"`

	// Keys and all fields up to Namespace are for key-value stores.
	Keys       int `json:"keys,omitempty"`
	KeyBytes   int `json:"keyBytes,omitempty"`
	ValueBytes int `json:"valueBytes,omitempty"`
	// Gets and Sets are the two sides of the ratio of gets to sets.
	Gets int `json:"gets,omitempty"`
	Sets int `json:"sets,omitempty"`
	// Distribution of the keys: "uniform".
	Distribution string `json:"distribution,omitempty"`
	Prefill      bool   `json:"prefill,omitempty"`
	Namespace    string `json:"namespace,omitempty"` // Aerospike only

	// Objects and all fields up to KeepAlive are for HTTP.
	Objects []Object `json:"objects,omitempty"`
	// HostHeader is the value of the Host header; "": the server's address and port.
	HostHeader string `json:"hostHeader,omitempty"`
	TLS        *TLS   `json:"tls,omitempty"` // HTTPS only
	KeepAlive  bool   `json:"keepAlive,omitempty"`

	// LeastHits is the least share of gets, in permille, that the server's own counters must count as
	// hits; 0: not checked.
	LeastHits int `json:"leastHitsPermille,omitempty"`
}

// An Object is what an HTTP request asks for.
type Object struct {
	Path string `json:"path"`
	// Copies is the number of objects like this one. If there are several, each request picks one at
	// random. "$n" in Path is its number, from 1.
	Copies int `json:"copies"`
	// Bytes is the object's length. An answer of another length is an error.
	Bytes int64 `json:"bytes"`
	// Uncached says that the origin forbids caching the object.
	Uncached bool `json:"uncached,omitempty"`
	// Weight is the object's weight when a request chooses an object at random.
	Weight int `json:"weight"`
}

// TLS is the TLS configuration of the generators.
type TLS struct {
	Version string `json:"version"` // "1.2" or "1.3"
	// Authority is a PEM file with the authority of the server's certificate. "": with
	// Server.Certificate, the run's own authority; otherwise the certificate is not verified.
	Authority  string `json:"authority,omitempty"`
	ServerName string `json:"serverName,omitempty"` // "": HostHeader or address
}

// Modes of load: when a generator sends a request.
const (
	Open   = "open"   // at a planned time, even if earlier requests are not answered
	Closed = "closed" // after the answer to the connection's request before
)

// Load says how generators send the requests.
type Load struct {
	Mode string `json:"mode"`
	// Rates are in requests per second over all generators, for Open. Each rate is a load point. Rates
	// may be empty only with Search.
	Rates []int `json:"ratesPerSecond,omitempty"`
	// Arrivals of Open: "constant" or "poisson".
	Arrivals string `json:"arrivals,omitempty"`
	// Connections are numbers of connections over all generators. Open has one number; in Closed, each
	// number is a load point.
	Connections []int `json:"connections"`
	// ConnectionsPerClient are these numbers for each client's host; nil: the file has them for all.
	ConnectionsPerClient []int `json:"connectionsPerClient,omitempty"`
	// Expect is the rate in requests per second that the generators have to be able to reach, for Closed;
	// 0: not known.
	Expect int `json:"expectPerSecond,omitempty"`
	// Pipeline is the largest number of unanswered requests per connection; 0, for Open: no limit.
	Pipeline int `json:"pipeline"`
	// Generators is the number of generator processes. Connections and rates are divided among them.
	Generators int `json:"generators"`
	// Spin is how long before each planned send a generator stops sleeping and polls.
	Spin int64 `json:"spinNs,omitempty"`
	// ConnectTimeout limits one connect; 0: 5 s. ConnectRate is the largest number of connections
	// that are opened per second, over all generators; 0: no limit.
	ConnectTimeout int64 `json:"connectTimeoutNs,omitempty"`
	ConnectRate    int   `json:"connectRatePerSecond,omitempty"`
	// Nagle says that TCP_NODELAY is off.
	Nagle bool `json:"nagle,omitempty"`
	// Warmup is the time before each Window; its requests are not counted. Timeout limits one request.
	Warmup  int64 `json:"warmupNs"`
	Window  int64 `json:"windowNs"`
	Timeout int64 `json:"timeoutNs"`
}

// A Probe is a further server of niclane on the SUT, on a port of its own. In every window it gets
// the same kind of load as the server: the workload's requests in an open loop.
type Probe struct {
	Name string `json:"name"`
	// Address is the address on which it listens; "": the SUT's.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port"`
	// Rate is in requests per second.
	Rate int `json:"ratePerSecond"`
	// Bulk is the share of the link in permille that it also sends, as answers of BulkBytes.
	Bulk int `json:"bulkPermille,omitempty"`
}

// BulkBytes is the length of the values with which a probe makes its bulk.
const BulkBytes = 64 << 10

// Directions of noise.
const (
	ToSUT   = "to-sut"
	FromSUT = "from-sut"
)

// Noise is bulk traffic in addition to the load.
type Noise struct {
	Direction string `json:"direction"`
	Protocol  string `json:"protocol"` // "tcp" or "udp"
	// Rate on the link, in bit/s; if BitsPerSecond is 0, in permille of the link's rate.
	BitsPerSecond uint64 `json:"bitsPerSecond,omitempty"`
	Share         int    `json:"sharePermille,omitempty"`
	Flows         int    `json:"flows"`
	Port          int    `json:"port"`
	// Segment is TCP's MSS, or the payload of a UDP datagram. If it is 0, TCP uses the kernel's
	// default, and UDP the largest payload that fits the MTU.
	Segment int `json:"segmentBytes,omitempty"`
	// Congestion is the name of TCP's congestion control; "": the kernel's default.
	Congestion string `json:"congestion,omitempty"`
}

// Placement says on which processors processes run. It holds for every variant.
type Placement struct {
	Server    Place `json:"server"`
	Generator Place `json:"generator"`
	Noise     Place `json:"noise"`    // on the noise host
	SUTNoise  Place `json:"sutNoise"` // the noise's processes on the SUT
}

// A Place is a set of processors and a SCHED_FIFO priority. CPUs nil: all processors of the host.
// FIFO 0: SCHED_OTHER.
type Place struct {
	CPUs []int `json:"cpus,omitempty"`
	FIFO int   `json:"fifoPriority,omitempty"`
}

// A Variant is one configuration of the server's host. Variants differ only in these fields.
type Variant struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Noise bool   `json:"noise"`
	// Lanes is the text of a lanes file, in which Expand replaces names. LanesFile is the path of a
	// lanes file, used unchanged. If neither is set, there are no lanes; both is an error.
	Lanes     string `json:"lanes,omitempty"`
	LanesFile string `json:"lanesFile,omitempty"`
	// Force replaces globals.force in the lanes file.
	Force map[string]string `json:"force,omitempty"`
	// ClientLanes is the text of a lanes file for every client, in which Expand replaces names.
	ClientLanes string `json:"clientLanes,omitempty"`
	// LanePolicy is the manifest of a LanePolicy in the cluster, for KindPod. Expand replaces names in
	// it.
	LanePolicy string `json:"lanePolicy,omitempty"`
	// Server and Tune change the server and its host for this variant; nil: no change.
	Server *VariantServer `json:"server,omitempty"`
	Tune   *Tune          `json:"tune,omitempty"`
}

// Repeats is how often each variant is measured at each load point. The order changes by round: A B
// C, C B A, B C A, ...
type Repeats struct {
	Min   int    `json:"min"`
	Max   int    `json:"max"`
	Until *Until `json:"until,omitempty"` // nil: always Max repeats
}

// Until ends the repeats early. It does so when, in every variant, the confidence interval of
// Percentile is at most Width permille of the percentile's value.
type Until struct {
	Percentile float64 `json:"percentile"`
	Width      int     `json:"widthPermille"`
}

// SLA says that a percentile of the latency must be at most At.
type SLA struct {
	Percentile float64 `json:"percentile"`
	At         int64   `json:"atNs"`
}

// SLAs returns all SLAs in the order of the file; nil: none.
func (e *Experiment) SLAs() []SLA {
	if e.SLA == nil {
		return nil
	}
	return append([]SLA{*e.SLA}, e.MoreSLAs...)
}

// Search finds the highest rate that meets the SLA, the five-percent rule, or both if both are set.
type Search struct {
	From int `json:"fromPerSecond"`
	To   int `json:"toPerSecond"`
	// Resolution ends the search: the interval in which the rate lies is this share of the rate, in
	// permille.
	Resolution int `json:"resolutionPermille"`
	// FivePercentRule refuses a rate if the server achieves less than 95 % of it.
	FivePercentRule bool `json:"fivePercentRule"`
	// Variants are the names of the variants to search; empty: all.
	Variants []string `json:"variants,omitempty"`
	// LatencyAt are shares, in permille, of the rate that was found. The run measures the latency at
	// each of these rates.
	LatencyAt []int `json:"latencyAtPermille"`
}

// Searches reports whether the search includes a variant.
func (s *Search) Searches(variant string) bool {
	return s != nil && (len(s.Variants) == 0 || slices.Contains(s.Variants, variant))
}

// Sweep measures one window at each combination of noise and switch buffer, after the repeats.
type Sweep struct {
	Variants []string `json:"variants"`
	// Noise are shares of the link, in permille. Each of them replaces the rates of Experiment.Noise.
	Noise []int `json:"noisePermille"`
	// SwitchBuffers are sizes of the lab switch's buffer; empty: unchanged.
	SwitchBuffers []int64 `json:"switchBuffersBytes,omitempty"`
	Window        int64   `json:"windowNs"`
}

// Measures of a goal.
const (
	MeasureLatency = "latency" // Percentile of the latency
	MeasureRate    = "rate"    // achieved requests per second
	MeasureNoise   = "noise"   // achieved rate of the noise
	// MeasureProcessorTime is the server's processor time per request. Threads that poll for it are
	// not in it.
	MeasureProcessorTime = "processor-time"
)

// A Goal limits the ratio of Variant to Base in a measure: at most AtMost, or at least AtLeast. It
// is written before the measurement.
type Goal struct {
	Measure    string  `json:"measure"`
	Percentile float64 `json:"percentile,omitempty"`
	Variant    string  `json:"variant"`
	Base       string  `json:"base"`
	AtMost     float64 `json:"atMost,omitempty"`
	AtLeast    float64 `json:"atLeast,omitempty"`
}

// HostNoise limits how late a thread that only sleeps may wake up on the host.
type HostNoise struct {
	// Window is the length of each of two measurements, before and after the run.
	Window int64 `json:"windowNs"`
	// Percentile of the lateness must be at most AtMost; AtMost 0: no limit.
	Percentile float64 `json:"percentile"`
	AtMost     int64   `json:"atMostNs,omitempty"`
	// Refuse says that the run ends if the limit is exceeded; otherwise it warns.
	Refuse bool `json:"refuse,omitempty"`
}

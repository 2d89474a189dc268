// SPDX-License-Identifier: Apache-2.0

// Package load generates requests and measures their latency: in an open loop from the time at
// which a request was due, in a closed loop from its send.
//
// A worker is one OS thread with one epoll set. It sleeps until the next intended send, and
// spins only if configured. A stall of the server or of the generator itself is fully visible:
// requests queue, none is left out. The package measures every protocol that has a codec in
// package proto. Protocols whose client is a library run in goroutines, with the same
// accounting (RunCalls).
//
// It refuses invalid parameters. It keeps failed requests in the distribution (a lost request
// is at least as slow as the timeout). It does not judge: see package stats.
package load

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/niclane/niclane/bench/load/proto/http1"
	"github.com/niclane/niclane/bench/part/thread"
)

// Protocols.
const (
	Memcached = "memcached" // text protocol, get and set
	HTTP      = "http"      // HTTP/1.1, GET
	Redis     = "redis"     // RESP2, GET and SET
	Aerospike = "aerospike" // by its Go client: package load/aerospike
)

// Modes.
const (
	// Open sends at a rate, whether or not requests are answered.
	Open = "open"
	// Closed sends the next request of a connection when the previous one is answered. A
	// stalled server then gets fewer requests, which hides the stall.
	Closed = "closed"
)

// Arrivals of requests in an open loop.
const (
	Constant = "constant" // one every 1/rate
	Poisson  = "poisson"  // exponential gaps with mean 1/rate, from Seed
)

// Config is the configuration of Run. Durations are in ns.
type Config struct {
	// Protocol is Memcached (default), HTTP, Redis or Aerospike.
	Protocol string `json:"protocol,omitempty"`
	// Address of the server, "10.0.0.1:11211" or "[fd00::1]:11211".
	Address string `json:"address"`
	// TLS says how connections use TLS; nil: no TLS.
	TLS *TLS `json:"tls,omitempty"`

	// Mode is Open (default) or Closed.
	Mode string `json:"mode,omitempty"`
	// Rate of requests per second over all connections, 1 to 10,000,000; open
	// loop only.
	Rate float64 `json:"ratePerSecond,omitempty"`
	// Arrivals is Constant (default) or Poisson; open loop only.
	Arrivals string `json:"arrivals,omitempty"`
	// Seed of the arrivals and of the choice of keys.
	Seed uint64 `json:"seed,omitempty"`
	// Connections, 1 to 50,000 (default 1). In an open loop, requests use the connections with
	// room in turn. If none has room, they wait in one queue.
	Connections int `json:"connections,omitempty"`
	// Pipeline is the largest number of outstanding requests per connection. 0 is no limit in
	// an open loop of Memcached and Redis, and 1 otherwise.
	Pipeline int `json:"pipeline,omitempty"`
	// Threads is the number of generating threads, 1 to 256 (default 1). With more than one,
	// CPUs is empty or holds one processor for each.
	Threads int `json:"threads,omitempty"`

	// Keys is the number of keys of Memcached, Redis and Aerospike (default 1000), drawn
	// uniformly.
	Keys int `json:"keys,omitempty"`
	// KeyBytes, up to 250 (default 16), and ValueBytes, 1 to 1 MiB (default 64).
	KeyBytes   int `json:"keyBytes,omitempty"`
	ValueBytes int `json:"valueBytes,omitempty"`
	// SetShare is the share of requests that are sets, 0 (default) to 1.
	SetShare float64 `json:"setShare,omitempty"`
	// Prefill sets all keys before the start.
	Prefill bool `json:"prefill,omitempty"`
	// Objects to GET by HTTP.
	Objects *Objects `json:"objects,omitempty"`
	// Records of Aerospike.
	Records *Records `json:"records,omitempty"`

	// StartMono is the CLOCK_MONOTONIC time at which to begin, at most a minute after all
	// connections are open. A time in the past, such as 0, means at once. Generators on several
	// hosts use it to begin together.
	StartMono int64 `json:"startMonoNs,omitempty"`
	// Requests of the Warmup are sent but not counted. Duration is the counted time after it.
	Warmup   int64 `json:"warmupNs,omitempty"`
	Duration int64 `json:"durationNs,omitempty"`
	// Steps of a ramp run one after the other on the same connections. Each begins when all
	// requests of the previous step are answered or given up. A zero field of a step has the value
	// of Config's field with the same name.
	Steps []Step `json:"steps,omitempty"`
	// Window is the length of one window of the Result's series (default 100 ms, at least 1 ms).
	Window int64 `json:"windowNs,omitempty"`

	// Timeout (default 2 s): a response later than this after its intended time counts as timed
	// out, with its true latency. Run also waits that long for responses after the last
	// request.
	Timeout int64 `json:"timeoutNs,omitempty"`
	// ConnectTimeout (default 5 s) limits the time to connect, and to set a batch of keys for
	// Prefill.
	ConnectTimeout int64 `json:"connectTimeoutNs,omitempty"`
	// ConnectRate limits how many connections are opened per second, over all threads; 0: no limit.
	// Not for Aerospike, whose client opens connections itself.
	ConnectRate float64 `json:"connectRatePerSecond,omitempty"`
	// Nagle leaves TCP_NODELAY off, so that the kernel collects small requests (Nagle's algorithm).
	// Not for Aerospike.
	Nagle bool `json:"nagle,omitempty"`
	// Reconnect reopens lost connections after Backoff (default 10 ms), doubled at every
	// failure up to 1 s. It also gives up a connection whose oldest request is over the
	// timeout. Without it, a lost connection stays lost. Connections that the protocol ends,
	// for example with HTTP's "Connection: close", are always reopened at once.
	Reconnect bool  `json:"reconnect,omitempty"`
	Backoff   int64 `json:"backoffNs,omitempty"`

	// Thread placement of the generator.
	thread.Setup
	// Spin is how long before an intended send the thread stops sleeping and polls. 0, the
	// default, never spins: on a small machine a spinning generator takes the processor from
	// other threads.
	Spin int64 `json:"spinNs,omitempty"`
}

// A Step of a ramp.
type Step struct {
	Rate        float64 `json:"ratePerSecond,omitempty"`
	Connections int     `json:"connections,omitempty"` // in use; as many are open as the largest step uses
	Warmup      int64   `json:"warmupNs,omitempty"`
	Duration    int64   `json:"durationNs,omitempty"`
}

// Objects are the objects that are requested from an HTTP server.
type Objects struct {
	// Host header (default: Address).
	Host string `json:"host,omitempty"`
	// Paths, drawn by weight.
	Paths []http1.Path `json:"paths"`
	// Headers are further header lines, "Name: value".
	Headers []string `json:"headers,omitempty"`
}

// Records says which records of Aerospike are used: one for each key, with one string bin.
type Records struct {
	Namespace string `json:"namespace,omitempty"` // default "test"
	Set       string `json:"set,omitempty"`       // default "niclane"
	Bin       string `json:"bin,omitempty"`       // default "v", at most 15 bytes
}

// Limits, so that a run fits into the memory.
const (
	maxRate        = 10_000_000
	maxConnections = 50_000
	maxThreads     = 256
	maxSteps       = 10_000
	maxRequests    = 1 << 30 // of a step of an open loop
	maxDuration    = 7 * 24 * 3600e9
	minConnectRate = 0.001
)

// WithDefaults returns c with defaults in place of zeros.
func (c Config) WithDefaults() Config {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	ns := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	text := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	text(&c.Protocol, Memcached)
	text(&c.Mode, Open)
	def(&c.Connections, 1)
	def(&c.Threads, 1)
	if c.Mode == Open {
		text(&c.Arrivals, Constant)
	}
	if c.Mode == Closed || c.Protocol == HTTP || c.Protocol == Aerospike {
		def(&c.Pipeline, 1)
	}
	if c.Protocol != HTTP {
		def(&c.Keys, 1000)
		def(&c.KeyBytes, 16)
		def(&c.ValueBytes, 64)
	}
	if c.Protocol == Aerospike {
		r := Records{}
		if c.Records != nil {
			r = *c.Records
		}
		text(&r.Namespace, "test")
		text(&r.Set, "niclane")
		text(&r.Bin, "v")
		c.Records = &r
	}
	if c.Objects != nil {
		o := *c.Objects
		text(&o.Host, c.Address)
		c.Objects = &o
	}
	ns(&c.Window, 100e6)
	ns(&c.Timeout, 2e9)
	ns(&c.ConnectTimeout, 5e9)
	ns(&c.Backoff, 10e6)
	return c
}

// steps returns the steps to run. Their zero fields have the values of c's fields.
func (c Config) steps() []Step {
	all := Step{c.Rate, c.Connections, c.Warmup, c.Duration}
	if len(c.Steps) == 0 {
		return []Step{all}
	}
	steps := make([]Step, len(c.Steps))
	for i, s := range c.Steps {
		s.Rate = cmp.Or(s.Rate, all.Rate)
		s.Connections = cmp.Or(s.Connections, all.Connections)
		s.Warmup = cmp.Or(s.Warmup, all.Warmup)
		s.Duration = cmp.Or(s.Duration, all.Duration)
		steps[i] = s
	}
	return steps
}

// Check reports every error in c, after defaults are filled in.
func (c Config) Check() error {
	_, _, err := c.withDefaults()
	return err
}

// withDefaults returns c with defaults filled in, and the server's address. The error lists every
// fault in c.
func (c Config) withDefaults() (Config, netip.AddrPort, error) {
	c = c.WithDefaults()
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	addr, err := netip.ParseAddrPort(c.Address)
	if err != nil {
		bad("address %q: want ADDRESS:PORT with a numeric address", c.Address)
	} else if addr.Port() == 0 {
		bad("address %q: port 0, want 1 to 65535", c.Address)
	}
	within := func(name string, v, lo, hi int) {
		if v < lo || v > hi {
			bad("%s %d: want %d to %d", name, v, lo, hi)
		}
	}
	within("pipeline", c.Pipeline, 0, math.MaxInt32)
	within("threads", c.Threads, 1, maxThreads)
	if c.Threads > 1 && len(c.CPUs) > 0 && len(c.CPUs) != c.Threads {
		bad("cpus: %d for %d threads, want one for each or none", len(c.CPUs), c.Threads)
	}
	switch c.Mode {
	case Open:
		if c.Arrivals != Constant && c.Arrivals != Poisson {
			bad("arrivals %q: want %q or %q", c.Arrivals, Constant, Poisson)
		}
	case Closed:
		if c.Arrivals != "" {
			bad("arrivals %q: a closed loop has none", c.Arrivals)
		}
	default:
		bad("mode %q: want %q or %q", c.Mode, Open, Closed)
	}
	if len(c.Steps) > maxSteps {
		bad("steps: %d, want at most %d", len(c.Steps), maxSteps)
	}
	for i, s := range c.steps() {
		at := ""
		if len(c.Steps) > 0 {
			at = fmt.Sprintf("steps[%d].", i)
		}
		switch {
		case c.Mode == Closed && s.Rate != 0:
			bad("%sratePerSecond %v: a closed loop has no rate", at, s.Rate)
		case c.Mode == Open && !(s.Rate >= 1 && s.Rate <= maxRate):
			bad("%sratePerSecond %v: want 1 to %d", at, s.Rate, maxRate)
		}
		within(at+"connections", s.Connections, 1, maxConnections)
		if s.Connections < c.Threads {
			bad("%sconnections %d: want at least one for each of %d threads", at, s.Connections, c.Threads)
		}
		if s.Duration <= 0 || s.Warmup < 0 || s.Duration > maxDuration || s.Warmup > maxDuration {
			bad("%sdurationNs %d, warmupNs %d: want durationNs above 0, warmupNs not negative, both at most a week", at,
				s.Duration, s.Warmup)
		} else if n := s.Rate * float64(s.Duration+s.Warmup) / 1e9; n > maxRequests {
			bad("%srate × duration: %.0f requests, want at most %d", at, n, maxRequests)
		}
	}
	if c.Timeout < 0 || c.ConnectTimeout < 0 || c.Spin < 0 || c.Backoff < 0 || c.Window < 1e6 {
		bad("timeoutNs %d, connectTimeoutNs %d, spinNs %d, backoffNs %d: want none negative; windowNs %d: want at "+
			"least 1000000",
			c.Timeout, c.ConnectTimeout, c.Spin, c.Backoff, c.Window)
	}
	if c.ConnectRate < 0 || c.ConnectRate > 0 && c.ConnectRate < minConnectRate {
		bad("connectRatePerSecond %v: want at least %v, or 0 for no limit", c.ConnectRate, minConnectRate)
	}
	if c.Protocol == Aerospike && (c.ConnectRate > 0 || c.Nagle) {
		bad("connectRatePerSecond, nagle: the client of %s opens connections itself", Aerospike)
	}
	if c.TLS != nil && addr.IsValid() {
		if _, err := c.TLS.config(addr); err != nil {
			errs = append(errs, err)
		}
	}
	if err := c.checkWorkload(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return c, addr, fmt.Errorf("load: %w", errors.Join(errs...))
	}
	return c, addr, nil
}

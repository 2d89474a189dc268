// SPDX-License-Identifier: Apache-2.0

// Package load sends memcached gets at intended times and measures each from
// its intended time (open loop).
//
// One Run is one OS thread with one epoll set; it sleeps until the next
// intended send and does not spin unless asked to. A stall of the server or of
// the generator itself therefore shows in full: requests queue, none is left
// out. It refuses to run with parameters that cannot be right, never reconnects
// (a lost connection is a result, its requests count as unanswered) and does
// not judge: see package stats.
package load

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/niclane/niclane/bench/thread"
)

// Arrivals of requests.
const (
	Constant = "constant" // one every 1/rate
	Poisson  = "poisson"  // exponential gaps with mean 1/rate, from Seed
)

// Config is what Run does. Durations are in ns.
type Config struct {
	// Address of the server, "10.0.0.1:11211" or "[fd00::1]:11211".
	Address string `json:"address"`
	// Rate of requests per second over all connections, 1 to 10,000,000.
	Rate float64 `json:"ratePerSecond"`
	// Arrivals is Constant (default) or Poisson.
	Arrivals string `json:"arrivals,omitempty"`
	// Seed of the arrivals and of the choice of keys.
	Seed uint64 `json:"seed,omitempty"`
	// Connections, 1 to 10,000 (default 1); requests take them in turn.
	Connections int `json:"connections,omitempty"`
	// Pipeline is how many requests may be outstanding on one connection;
	// further ones wait in the generator. 0 means no limit.
	Pipeline int `json:"pipeline,omitempty"`

	// Keys, 1 to 10,000,000 (default 1000), drawn uniformly.
	Keys int `json:"keys,omitempty"`
	// KeyBytes, 8 to 250 (default 16), and ValueBytes, 1 to 1 MiB (default 64).
	KeyBytes   int `json:"keyBytes,omitempty"`
	ValueBytes int `json:"valueBytes,omitempty"`
	// Prefill sets all keys before the start.
	Prefill bool `json:"prefill,omitempty"`

	// Warmup is sent but not counted, Duration is.
	Warmup   int64 `json:"warmupNs,omitempty"`
	Duration int64 `json:"durationNs"`
	// Timeout (default 2 s): a response later than this after its intended
	// time counts as timed out, with its true latency. It is also how long Run
	// waits for responses after the last request.
	Timeout int64 `json:"timeoutNs,omitempty"`
	// ConnectTimeout (default 5 s) bounds connecting and prefilling each step.
	ConnectTimeout int64 `json:"connectTimeoutNs,omitempty"`

	// Thread placement of the generator.
	thread.Setup
	// Spin is how long before an intended send the thread stops sleeping and
	// polls. 0, the default, never spins: on a small machine a spinning
	// generator takes the processor from whatever shares it.
	Spin int64 `json:"spinNs,omitempty"`
}

// Limits that keep one request in one buffer and the run in memory.
const (
	maxRate        = 10_000_000
	maxConnections = 10_000
	maxKeys        = 10_000_000
	maxKeyBytes    = 250 // memcached's own limit
	minKeyBytes    = 8   // maxKeys distinct decimal keys
	maxValueBytes  = 1 << 20
	maxRequests    = 1 << 30
)

// WithDefaults returns c with defaults in the place of zeros.
func (c Config) WithDefaults() Config {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.Connections, 1)
	def(&c.Keys, 1000)
	def(&c.KeyBytes, 16)
	def(&c.ValueBytes, 64)
	if c.Arrivals == "" {
		c.Arrivals = Constant
	}
	if c.Timeout == 0 {
		c.Timeout = 2e9
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 5e9
	}
	return c
}

// withDefaults returns c with defaults filled in, or every error in it.
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
	if !(c.Rate >= 1 && c.Rate <= maxRate) {
		bad("ratePerSecond %v: want 1 to %d", c.Rate, maxRate)
	}
	if c.Arrivals != Constant && c.Arrivals != Poisson {
		bad("arrivals %q: want %q or %q", c.Arrivals, Constant, Poisson)
	}
	within := func(name string, v, lo, hi int) {
		if v < lo || v > hi {
			bad("%s %d: want %d to %d", name, v, lo, hi)
		}
	}
	within("connections", c.Connections, 1, maxConnections)
	within("pipeline", c.Pipeline, 0, math.MaxInt32)
	within("keys", c.Keys, 1, maxKeys)
	within("keyBytes", c.KeyBytes, minKeyBytes, maxKeyBytes)
	within("valueBytes", c.ValueBytes, 1, maxValueBytes)
	if c.Duration <= 0 || c.Warmup < 0 || c.Timeout < 0 || c.ConnectTimeout < 0 || c.Spin < 0 {
		bad("durations: want durationNs above 0 and the others not negative")
	}
	if n := c.Rate * float64(c.Duration+c.Warmup) / 1e9; n > maxRequests {
		bad("rate × duration: %.0f requests, want at most %d", n, maxRequests)
	}
	if k := float64(c.Keys) * float64(c.KeyBytes); k > 1<<30 {
		bad("keys × keyBytes: %.0f bytes, want at most 1 GiB", k)
	}
	if len(errs) > 0 {
		return c, addr, fmt.Errorf("load: %w", errors.Join(errs...))
	}
	return c, addr, nil
}

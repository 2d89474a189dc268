// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/errtest"
)

// accepting returns the address of a server that accepts connections and keeps them. opened receives
// the time of each.
func accepting(t *testing.T) (addr netip.AddrPort, opened chan time.Time) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	opened = make(chan time.Time, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			opened <- time.Now()
			defer c.Close()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()), opened
}

func TestNagle(t *testing.T) {
	addr, _ := accepting(t)
	for _, nagle := range []bool{false, true} {
		to, err := newTarget(&Config{Nagle: nagle, ConnectTimeout: 5e9}, addr)
		if err != nil {
			t.Fatal(err)
		}
		fd, _, err := to.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		on, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		unix.Close(fd)
		if err != nil || (on == 0) != nagle {
			t.Errorf("nagle %v: TCP_NODELAY %d, %v", nagle, on, err)
		}
	}
}

// TestConnectRate: all threads together open at most so many connections per second. A busy host
// opens them later, never sooner.
func TestConnectRate(t *testing.T) {
	addr, opened := accepting(t)
	c := Config{Address: addr.String(), Rate: 1, Duration: 1, Connections: 6, Threads: 2, ConnectRate: 50, Timeout: 1e6}
	begin := time.Now()
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	// The first begins at once, and each other 20 ms after the one before.
	var last time.Time
	for range 6 {
		last = <-opened
	}
	if took := last.Sub(begin); took < 100*time.Millisecond {
		t.Errorf("6 connections at 50/s in %v, want at least 100ms", took)
	}
	to, err := newTarget(&Config{ConnectRate: 0.001}, addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.pace(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := to.pace(ctx); err == nil {
		t.Error("the second of one in 1000 s did not wait")
	}
}

func TestConnectConfig(t *testing.T) {
	base := Config{Address: "127.0.0.1:1", Rate: 1, Duration: 1}
	for want, change := range map[string]func(c *Config){
		"connectRatePerSecond -1: want at least": func(c *Config) { c.ConnectRate = -1 },
		"connectRatePerSecond 0.0001":            func(c *Config) { c.ConnectRate = 0.0001 },
		"the client of aerospike opens":          func(c *Config) { c.Protocol, c.Nagle = Aerospike, true },
		"the client of aerospike opens conn":     func(c *Config) { c.Protocol, c.ConnectRate = Aerospike, 5 },
	} {
		c := base
		change(&c)
		errtest.Says(t, want, c.Check(), want)
	}
}

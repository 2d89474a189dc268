// SPDX-License-Identifier: Apache-2.0

// Package memserver is a small memcached-protocol server for measurements where memcached
// itself cannot be installed.
//
// It answers get, gets, set, delete, stats, version, verbosity and quit of the text protocol
// from memory. It limits everything that a client can make it hold (connections, values, total
// memory, unread output) and refuses more. It lacks memcached's eviction, persistence, UDP,
// authentication, and binary and meta protocols.
package memserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/niclane/niclane/bench/part/thread"
)

// Config is the configuration of Run.
type Config struct {
	// Address to listen on, "10.0.0.2:11211" or "[::]:11211". Port 0 chooses a free one, see
	// Server.Addr.
	Address string `json:"address"`
	// Threads is the number of serving threads, 1 to 256 (default 1).
	Threads int `json:"threads,omitempty"`
	// MaxConnections at the same time (default 1024); further ones are closed at once.
	MaxConnections int `json:"maxConnections,omitempty"`
	// MaxMemory for keys and values in bytes (default 64 MiB). A set that exceeds it is refused
	// with "SERVER_ERROR out of memory storing object".
	MaxMemory int64 `json:"maxMemoryBytes,omitempty"`
	// MaxValue in bytes (default 1 MiB), as memcached's item size limit.
	MaxValue int `json:"maxValueBytes,omitempty"`
	// Placement of each serving thread.
	thread.Setup
}

// Result is what Run counted.
type Result struct {
	Connections uint64 `json:"connections"` // accepted
	Refused     uint64 `json:"refused"`     // over MaxConnections
	Gets        uint64 `json:"gets"`        // keys asked for
	Hits        uint64 `json:"hits"`
	Sets        uint64 `json:"sets"`
	Items       int64  `json:"items"`
	Memory      int64  `json:"memoryBytes"`
	CPUTime     int64  `json:"cpuTimeNs"` // of the serving threads
}

func (c Config) withDefaults() (Config, netip.AddrPort, error) {
	c.Threads = cmp.Or(c.Threads, 1)
	c.MaxConnections = cmp.Or(c.MaxConnections, 1024)
	c.MaxMemory = cmp.Or(c.MaxMemory, 64<<20)
	c.MaxValue = cmp.Or(c.MaxValue, 1<<20)
	var errs []error
	addr, err := netip.ParseAddrPort(c.Address)
	if err != nil {
		errs = append(errs, fmt.Errorf("address %q: want ADDRESS:PORT with a numeric address", c.Address))
	}
	if c.Threads < 1 || c.Threads > 256 {
		errs = append(errs, fmt.Errorf("threads %d: want 1 to 256", c.Threads))
	}
	if c.MaxConnections < 1 || c.MaxConnections > 1<<20 {
		errs = append(errs, fmt.Errorf("maxConnections %d: want 1 to %d", c.MaxConnections, 1<<20))
	}
	if c.MaxMemory < 1 {
		errs = append(errs, fmt.Errorf("maxMemoryBytes %d: want more than 0", c.MaxMemory))
	}
	if c.MaxValue < 1 || c.MaxValue > 128<<20 {
		errs = append(errs, fmt.Errorf("maxValueBytes %d: want 1 to %d", c.MaxValue, 128<<20))
	}
	if len(errs) > 0 {
		return c, addr, fmt.Errorf("memserver: %w", errors.Join(errs...))
	}
	return c, addr, nil
}

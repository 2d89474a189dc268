// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"context"
	"errors"
	"net/netip"
)

// A Target is a service to measure: all conditions that are set have to hold for a socket.
type Target struct {
	Name string `json:"name"`           // unique among the targets
	Lane string `json:"lane,omitempty"` // the lane that the service is in
	// Protocol is "tcp" or "udp". Ports are the service's local ports, at least one.
	Protocol string         `json:"protocol"`
	Ports    []uint16       `json:"ports"`
	Addrs    []netip.Prefix `json:"addrs,omitempty"` // local addresses
	// PIDs are the service's processes, for the processor time and culprits. Cgroup is the path of a
	// version 2 control group below its mount; a process in it is the service's.
	PIDs   []int  `json:"pids,omitempty"`
	Cgroup string `json:"cgroup,omitempty"`
}

// Options say what to measure.
type Options struct {
	Targets []Target
	// Device limits the measurement to requests that arrive by this device. "" means all.
	Device string
	// MaxCost is the greatest share of the services' processor time that the programs may take. The
	// Collector follows fewer requests rather than exceed it. 0 means DefaultMaxCost.
	MaxCost float64
	// SampleRate is the share of requests to begin with, 0 to 1. 0 means all.
	SampleRate float64
	// FixedRate keeps SampleRate whatever the cost.
	FixedRate bool
}

// DefaultMaxCost is the greatest cost where Options do not say: 5 % of the services' processor time.
const DefaultMaxCost = 0.05

// A Collector measures until it is closed.
type Collector struct{}

// Open attaches the programs. They are detached by Close, at the end of ctx, and with the process,
// however it ends. Open works in the calling thread's network namespace. The error is
// ebpf.ErrNotSupported without BTF or before Linux 5.17, and EPERM without CAP_BPF, CAP_PERFMON or
// under lockdown; nothing is attached then.
func Open(ctx context.Context, o Options) (*Collector, error) {
	return nil, errors.ErrUnsupported
}

// Snapshot returns what the programs have seen since Open. It is safe for concurrent use.
func (c *Collector) Snapshot() (Snapshot, error) { return Snapshot{}, errors.ErrUnsupported }

// Close detaches the programs. A nil Collector is allowed.
func (c *Collector) Close() error { return nil }

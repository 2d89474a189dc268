// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/hiccup"
	"github.com/niclane/niclane/bench/result"
)

// A Site is where an experiment runs: the hosts, and what is done on them.
type Site interface {
	// Up makes the hosts ready and says in r what they are.
	Up(ctx context.Context, r *result.Result) error
	// StartServer returns when the server has answered in its own protocol.
	StartServer(ctx context.Context) (result.Server, error)
	// Prefill sets every key of the workload, once.
	Prefill(ctx context.Context) error
	// HostNoise measures what the hosts do to a thread that only wants to wake
	// up, for ns.
	HostNoise(ctx context.Context, ns int64) (hiccup.Result, error)
	// SetLanes applies the lanes of a variant, or none, in the place of those
	// that are applied. It returns the lanes file and the plan.
	SetLanes(ctx context.Context, v experiment.Variant) (lanes, plan string, err error)
	// SetSwitchBuffer sets the buffer of the switch in bytes, 0: what it was.
	SetSwitchBuffer(bytes int64) error
	// Measure measures one window. It fills in what was measured.
	Measure(ctx context.Context, j Job) (result.Window, error)
	// Down ends and removes whatever there is, also after a failure of Up.
	Down(ctx context.Context) error
}

// A Job is one window.
type Job struct {
	Rate        float64 // per second, of open loops
	Connections int
	Warmup      int64 // ns
	Window      int64 // ns
	Seed        uint64
	Noise       []experiment.Noise
}

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A Site is where an experiment runs: the hosts, and what is done on them.
type Site interface {
	// Up makes the hosts ready and says in r what they are: Environment, and in
	// the first variant's Differences how they are tuned in every variant.
	Up(ctx context.Context, r *result.Result) error
	// StartServer returns when the server of a variant has answered in its own
	// protocol. One that is running is ended before.
	StartServer(ctx context.Context, v experiment.Variant) (result.Server, error)
	// Prefill sets every key of the workload, or fetches every object, once.
	Prefill(ctx context.Context) error
	// HostNoise measures what the hosts do to a thread that only wants to wake
	// up, for ns.
	HostNoise(ctx context.Context, ns int64) (hiccup.Result, error)
	// SetTune sets what a variant tunes by hand, in the place of what is set.
	SetTune(ctx context.Context, v experiment.Variant) error
	// SetLanes applies the lanes of a variant, or none, in the place of those
	// that are applied. Of lanes that are applied already only the Text is
	// returned.
	SetLanes(ctx context.Context, v experiment.Variant) (Lanes, error)
	// SetSwitchBuffer sets the buffer of the switch in bytes, 0: what it was.
	SetSwitchBuffer(bytes int64) error
	// Measure measures one window. It fills in what was measured.
	Measure(ctx context.Context, j Job) (result.Window, error)
	// Logs are what the server and what is beside it said at last, by name.
	Logs() map[string]string
	// Down ends and removes whatever there is, also after a failure of Up.
	Down(ctx context.Context) error
}

// Lanes are what was applied for a variant.
type Lanes struct {
	Text string   // the lanes file, "" without lanes
	Plan string   // the steps that it took, as "niclane plan" prints them
	Did  []string // what the steps do, a line each
	// ClientPlan is the same as Plan for a client, where lanes were applied
	// there; of several the last.
	ClientPlan string
}

// applied is what a plan that was made says of itself.
func applied(text string, p *plan.Plan) Lanes {
	var b strings.Builder
	plan.WriteText(&b, p.Steps)
	return Lanes{Text: text, Plan: b.String(), Did: did(p)}
}

// planOf is the plan in what "niclane apply --json" printed.
func planOf(out []byte) (*plan.Plan, error) {
	var made struct {
		Plan plan.Plan `json:"plan"`
	}
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, fmt.Errorf("niclane apply: what it printed: %w", err)
	}
	return &made.Plan, nil
}

// laneQueues are what of a device is whose, by a plan that was made.
func laneQueues(p *plan.Plan, dev string) []machine.LaneQueues {
	told := false // what a lane receives, by its queues
	for _, c := range p.Choices {
		if c.Part == device.PartQueueSet {
			told = c.Mechanism == plan.ByMqprioChannel || c.Mechanism == plan.ByRSSContext ||
				c.Mechanism == plan.BySingleQueue
		}
	}
	var out []machine.LaneQueues
	for _, l := range p.Lanes {
		if l.Device != dev {
			continue
		}
		x := machine.LaneQueues{Name: l.Name, Tx: l.Queues, Class: l.Class}
		if told {
			x.Rx = l.Queues
		}
		out = append(out, x)
	}
	return out
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

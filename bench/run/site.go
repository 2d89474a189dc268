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

// A Site is the place of an experiment: the hosts, and the operations on them.
type Site interface {
	// Up prepares the hosts. It puts their description into r.Environment. The tuning that they
	// have in all variants goes into the first variant's Differences.
	Up(ctx context.Context, r *result.Result) error
	// StartServer returns when the server of a variant has answered in its own protocol. It
	// first ends a running server.
	StartServer(ctx context.Context, v experiment.Variant) (result.Server, error)
	// Prefill sets every key of the workload, or fetches every cacheable object.
	Prefill(ctx context.Context) error
	// HostNoise measures for ns how late the hosts wake a thread that only sleeps.
	HostNoise(ctx context.Context, ns int64) (hiccup.Result, error)
	// SetTune replaces the present tuning by that of a variant. It returns what it has left out.
	SetTune(ctx context.Context, v experiment.Variant) (leftOut []string, err error)
	// SetLanes replaces the present lanes by those of a variant. If the SUT already has these
	// lanes, the result's Plan and Did are empty.
	SetLanes(ctx context.Context, v experiment.Variant) (Lanes, error)
	// SetSwitchBuffer sets the buffer of the switch in bytes; 0: the original size.
	SetSwitchBuffer(bytes int64) error
	// Measure measures one window and returns what was measured.
	Measure(ctx context.Context, j Job) (result.Window, error)
	// Logs returns the last output of the server and its additional processes, by name.
	Logs() map[string]string
	// Down ends and removes everything, also after a failure of Up.
	Down(ctx context.Context) error
}

// Lanes are what was applied for a variant.
type Lanes struct {
	Text string   // the lanes file, "" without lanes
	Plan string   // steps of the plan, as "niclane plan" prints them
	Did  []string // the effects of the steps, a line each
	// ClientPlan is the plan that was applied on a client, like Plan; "": none. With several
	// clients, it is that of the last one.
	ClientPlan string
}

// applied describes plans that were applied, one for each text.
func applied(texts []string, plans []*plan.Plan) Lanes {
	var b strings.Builder
	for _, p := range plans {
		plan.WriteText(&b, p.Steps)
	}
	return Lanes{Text: joined(texts), Plan: b.String(), Did: did(plans...)}
}

// joined returns the lanes files of several cards as the documents of one text of YAML.
func joined(texts []string) string { return strings.Join(texts, "---\n") }

// planOf returns the plan from the output of "niclane apply --json".
func planOf(out []byte) (*plan.Plan, error) {
	var made struct {
		Plan plan.Plan `json:"plan"`
	}
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, fmt.Errorf("niclane apply: its output: %w", err)
	}
	return &made.Plan, nil
}

// laneQueues returns the queues and classes of each lane on a device, by a plan that was
// applied.
func laneQueues(p *plan.Plan, dev string) []machine.LaneQueues {
	told := false // packets of a lane arrive on the lane's queues
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
		x := machine.LaneQueues{Name: l.Name, Device: dev, Tx: l.Queues, Class: l.Class}
		if told {
			x.Rx = l.Queues
		}
		out = append(out, x)
	}
	return out
}

// A Job says how to measure one window.
type Job struct {
	Rate        float64 // per second, for open loops
	Connections int
	Warmup      int64 // ns
	Window      int64 // ns
	Seed        uint64
	Noise       []experiment.Noise
}

// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/report"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/plan"
)

// A place is where and how a process runs: the same in every variant.
type place struct {
	cpus   []int
	fifo   int  // SCHED_FIFO priority, 0: SCHED_OTHER
	member bool // in the control group of the lane's member
}

// Two processors: one for the server's host with all that its kernel does,
// one for everything outside it. The server and the generator are SCHED_FIFO in every variant,
// because the noise's processes share their processors for want of others: on
// a real host they would have their own.
var (
	outside        = []int{0}
	inside         = []int{1}
	generatorPlace = place{cpus: outside}
	serverPlace    = place{cpus: inside, fifo: fifoPriority, member: true}
)

// fifoPriority is the server's and the generator's. The generator's own thread
// takes it by itself: a whole Go process under SCHED_FIFO on one processor
// starves the thread it waits for.
const fifoPriority = 10

// placeOf is where the noise of a host runs.
func placeOf(host string) place {
	if host == "sut" {
		return place{cpus: inside}
	}
	return place{cpus: outside}
}

// describe fills in what is fixed before anything is measured.
func (m *measurement) describe() {
	r := m.result
	r.Command = fmt.Sprintf("niclane bench first-lane --pairs %d --rate %.0f --connections %d --window %v --noise %v --flows-in %d --flows-out %d",
		m.o.Pairs, m.o.Rate, m.o.Connections, m.o.Window, m.o.NoiseShare, m.o.FlowsIn, m.o.FlowsOut)
	if m.o.Card != "" {
		r.Command += " --card " + m.o.Card
	}
	for _, part := range slices.Sorted(maps.Keys(m.o.Force)) {
		r.Command += fmt.Sprintf(" --force %s=%s", part, m.o.Force[part])
	}
	cfg := m.loadConfig(window{length: m.o.Window})
	m.prefilled = false
	cfg.Prefill, cfg.Seed = false, 0
	r.Setup = report.Setup{
		LinkRate: int64(m.lab.linkRate()), NoiseShare: m.o.NoiseShare, Buffer: int64(m.lab.buffer()),
		Repeats: m.o.Pairs, Load: load.Config(cfg), Goal: latencyGoal, NoiseGoal: noiseGoal,
	}
	r.Environment.Placement = []report.Placement{
		{What: "server", CPUs: inside, Class: "SCHED_FIFO 10"},
		{What: "generator", CPUs: outside, Class: "SCHED_FIFO 10"},
		{What: "noise on the server's host", CPUs: inside, Class: "SCHED_OTHER"},
		{What: "noise on the noise host", CPUs: outside, Class: "SCHED_OTHER"},
		{What: "a packet's way to the server's host, from the switch's port on", CPUs: inside, Class: "softirq"},
		{What: "a packet's way from its port on, and the stacks of client and noise host", CPUs: outside, Class: "softirq"},
	}
	baseline := m.lab.baseline()
	r.Variants = []report.Variant{
		{Name: report.Idle, Title: "the server alone, no noise, no lane", Differences: baseline},
		{Name: report.NoLane, Title: "noise in both directions, no lane", Differences: []string{
			fmt.Sprintf("bulk TCP at %.0f %% of the link in each direction, paced inside TCP: %d flow to the host, %d from it", m.o.NoiseShare*100, m.o.FlowsIn, m.o.FlowsOut),
		}},
		// What differs with the lane is what the plan says, once it is made.
		{Name: report.Lane, Title: "the same noise, and a lane for the server"},
	}
}

// describeLane takes from the plan that was made what differs with the lane:
// each reason once, in the order of the plan.
func (m *measurement) describeLane(p *plan.Plan) {
	var text strings.Builder
	plan.WriteText(&text, p.Steps)
	m.result.Environment.Plan = text.String()
	m.lab.classes = map[string]string{}
	for _, l := range p.Lanes {
		m.lab.classes["sut class "+l.Class] = l.Name
	}
	lane := &m.result.Variants[len(m.result.Variants)-1]
	lane.Differences = []string{fmt.Sprintf("niclane apply has made the %d steps of the plan below; nothing else differs. For each part:", len(p.Steps))}
	for _, s := range p.Steps {
		if line := fmt.Sprintf("%s: %s", s.Part, s.Reason); !strings.Contains(s.Reason, "transmit queue") && !slices.Contains(lane.Differences, line) {
			lane.Differences = append(lane.Differences, line)
		}
	}
	for _, c := range p.Choices {
		if c.Part == device.PartMapper && c.Realisation != "" {
			lane.Differences = append(lane.Differences, "mapper: "+c.Reason)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

const lanesText = "version: 1\\nglobals:\\n  dev: lane0\\nlanes:\\n  a: {queues: 1, protocol: tcp, ports: [1]}\\n"

func TestDifferences(t *testing.T) {
	f := parse(t, "noise: [{direction: to-sut, rate: 30%}]",
		"noise:\n  - {direction: to-sut, rate: 30%, flows: 1}\n  - {direction: from-sut, rate: 10mbit, flows: 4}",
		"  - {name: noisy}\n", "  - {name: lane, lanes: \""+lanesText+"\", force: {poller: softirq}}\n  - {name: "+
			"noisy}\n  - {name: quiet, noise: off, lanes: \""+lanesText+"\"}\n")
	var got [][]string
	for i := range f.Experiment.Variants {
		got = append(got, differences(f.Experiment, i))
	}
	want := [][]string{
		nil,
		{"bulk TCP to the SUT at 30% of the link in 1 flow, paced inside TCP",
			"bulk TCP from the SUT at 10mbit in 4 flows, paced inside TCP",
			"poller: softirq, because the experiment forces it"},
		{"no lanes"},
		{"no noise"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDifferencesOfLanes: what lanes change is listed from the applied plan, each reason once.
func TestDifferencesOfLanes(t *testing.T) {
	step := func(part device.Part, reason string) plan.Step { return plan.Step{Part: part, Reason: reason} }
	lanes := Lanes{Text: "x", Plan: "y", Did: did(&plan.Plan{
		Steps: []plan.Step{step(device.PartSteering, "to its queues"), step(device.PartSteering, "to its queues"),
			step(device.PartBandwidth, "transmit queue 1")},
		Choices: []plan.Choice{
			{Part: device.PartMapper, Reason: "it receives from a queue"},
			{Part: device.PartMapper, Mechanism: "r", Reason: "because"},
			{Part: device.PartPoller, Mechanism: "r", Reason: "not said again"},
		},
	})}
	site := &fakeSite{lanes: lanes}
	r := ran(t, parse(t), site)
	want := []string{
		"bulk TCP to the SUT at 30% of the link in 1 flow, paced inside TCP",
		"niclane apply has made the 3 steps of the plan; nothing else differs. For each part:",
		"steering: to its queues", "mapper: because",
	}
	v := r.Variants[1]
	if diff := cmp.Diff(want, v.Differences); diff != "" || v.Plan != "y" || v.Lanes != "x" {
		t.Errorf("plan %q, lanes %q; differences (-want +got):\n%s", v.Plan, v.Lanes, diff)
	}
}

func TestPlacements(t *testing.T) {
	f := parse(t, "repeats:", "placement: {server: {cpus: 1, fifo: 10}, noise: {cpus: 3}}\nrepeats:")
	got := placements(f.Experiment, lab.Config{SUTCPUs: []int{1}, OtherCPUs: []int{0, 3}})
	if len(got) != 6 {
		t.Fatalf("%d placements: %+v", len(got), got)
	}
	for i, want := range []string{"server [1] SCHED_FIFO 10", "generator [0 3] SCHED_OTHER",
		"noise on the SUT [1] SCHED_OTHER", "noise on the noise host [3] SCHED_OTHER"} {
		if p := got[i]; p.What+" "+fmt.Sprint(p.CPUs)+" "+p.Class != want {
			t.Errorf("%+v, want %s", p, want)
		}
	}
	f.Experiment.Noise = nil
	if got := placements(f.Experiment, lab.Config{}); len(got) != 4 {
		t.Errorf("without noise %+v", got)
	}
}

func TestBaselineSaysWhatIs(t *testing.T) {
	e := parse(t).Experiment
	asleep, awake := baseline(e, lab.Config{}, false), baseline(e, lab.Config{}, true)
	if len(awake) != len(asleep)+1 {
		t.Errorf("awake %q, asleep %q", awake, asleep)
	}
	if cmp.Equal(asleep, baseline(e, lab.Config{Card: lab.CardNone}, false)) {
		t.Error("a plain veth has the same as a card")
	}
	e.Placement.Server = experiment.Place{FIFO: 7}
	if got := baseline(e, lab.Config{}, false); got[len(got)-1] != "server SCHED_FIFO 7, generator SCHED_OTHER, "+
		"each outside any autogroup" {
		t.Errorf("%q", got)
	}
}

// TestLaneQueues: laneQueues returns a lane's receive queues only if the lane's packets arrive on
// them. With a cpumap they do not.
func TestLaneQueues(t *testing.T) {
	p := plan.Plan{
		Lanes: []plan.FittedLane{{Name: "default", Device: "a", Queues: []int{0, 1}, Class: "1:2"},
			{Name: "x", Device: "a", Queues: []int{2}}, {Name: "x", Device: "b"}},
		Choices: []plan.Choice{{Part: device.PartQueueSet, Mechanism: plan.ByRSSContext}},
	}
	want := []machine.LaneQueues{{Name: "default", Device: "a", Rx: []int{0, 1}, Tx: []int{0, 1}, Class: "1:2"},
		{Name: "x", Device: "a", Rx: []int{2}, Tx: []int{2}}}
	if diff := cmp.Diff(want, laneQueues(&p, "a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Choices[0].Mechanism = plan.ByCpumap
	if got := laneQueues(&p, "a"); got[1].Rx != nil || got[1].Tx == nil {
		t.Errorf("with a cpumap: %+v", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/experiment"
)

// TestInVirtualTime checks which parts of an experiment are about the machine.
func TestInVirtualTime(t *testing.T) {
	given := func() *experiment.Experiment {
		return &experiment.Experiment{
			Lab: &experiment.Lab{SUTCPUs: []int{1}, OtherCPUs: []int{0, 2}, Queues: 4}, Base: "idle",
			Placement: experiment.Placement{Server: experiment.Place{CPUs: []int{1}, FIFO: 10}},
			HostNoise: experiment.HostNoise{Window: 1e9},
		}
	}
	e := given()
	inVirtualTime(e)
	want := &experiment.Experiment{Lab: &experiment.Lab{SUTCPUs: []int{0}, OtherCPUs: []int{0}, Queues: 4,
		LinkBurst: 2000}, Base: "idle"}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e = given()
	e.Lab.MTU = 9000
	if inVirtualTime(e); e.Lab.LinkBurst != 9014 {
		t.Errorf("with an MTU of 9000 the bucket has %d bytes, want a frame's 9014", e.Lab.LinkBurst)
	}
	e = given()
	e.Lab.LinkBurst = 32 << 10
	if inVirtualTime(e); e.Lab.LinkBurst != 32<<10 {
		t.Errorf("a burst that the file names became %d", e.Lab.LinkBurst)
	}
}

// TestCostsInRealTime: the model of processors is refused where work takes real time, before the lab is made.
func TestCostsInRealTime(t *testing.T) {
	for key, set := range map[string]func(*experiment.Lab){
		"packet-cost": func(l *experiment.Lab) { l.PacketCost = 1 },
		"wakeup-cost": func(l *experiment.Lab) { l.WakeupCost = 1 },
	} {
		f := parse(t)
		set(f.Experiment.Lab)
		err := InLab(f, "v1", "niclane-bench").(*labSite).Up(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "lab."+key+": found in real time") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

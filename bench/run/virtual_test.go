// SPDX-License-Identifier: Apache-2.0

package run

import (
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
	e.Lab.LinkRate = 10e9
	if inVirtualTime(e); e.Lab.LinkBurst != 2500 { // a frame at 10 Gbit/s takes 1.2 µs
		t.Errorf("the bucket of 10 Gbit/s has %d bytes, want 2 µs", e.Lab.LinkBurst)
	}
	e = given()
	e.Lab.LinkBurst = 32 << 10
	if inVirtualTime(e); e.Lab.LinkBurst != 32<<10 {
		t.Errorf("a burst that the file names became %d", e.Lab.LinkBurst)
	}
}

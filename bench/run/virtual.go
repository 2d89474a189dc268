// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/lab"
)

// inVirtualTime changes what an experiment says of the machine. In virtual time work takes no time:
// one processor is as good as any number, and no process delays another by its work. Under SCHED_FIFO
// a task that waits in the kernel for another one would wait forever. The machine has no noise.
// The clock is exact, so the link's token bucket can be as small as a frame: a deeper one would let
// bursts pass that queue on a real link.
func inVirtualTime(e *experiment.Experiment) {
	if e.Lab != nil {
		e.Lab.SUTCPUs, e.Lab.OtherCPUs = []int{0}, []int{0}
		e.Lab.LinkBurst = cmp.Or(e.Lab.LinkBurst, lab.LeastBurst(e.Lab.MTU))
	}
	e.Placement = experiment.Placement{}
	e.HostNoise = experiment.HostNoise{}
}

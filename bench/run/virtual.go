// SPDX-License-Identifier: Apache-2.0

package run

import (
	"github.com/niclane/niclane/bench/experiment"
)

// inVirtualTime changes what an experiment says of processors. In virtual time work takes no time,
// so one processor is as good as any number, and nobody's work delays another's. SCHED_FIFO would
// only let a task that waits in the kernel wait forever. The machine's noise does not exist.
func inVirtualTime(e *experiment.Experiment) {
	if e.Lab != nil {
		e.Lab.SUTCPUs, e.Lab.OtherCPUs = []int{0}, []int{0}
	}
	e.Placement = experiment.Placement{}
	e.HostNoise = experiment.HostNoise{}
}

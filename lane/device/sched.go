// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strings"
	"time"
)

// A SchedAttr has the parameters of sched_setattr(2) beyond policy, priority
// and nice value. niclane never sets them, except to restore their old values.
type SchedAttr struct {
	// Runtime, Deadline and Period are in nanoseconds, for the policy "deadline".
	Runtime  uint64 `json:"runtime,omitempty"`
	Deadline uint64 `json:"deadline,omitempty"`
	Period   uint64 `json:"period,omitempty"`
	// SchedFlags is a set of reset on fork (1), reclaim (2) and overrun (4).
	SchedFlags uint64 `json:"schedFlags,omitempty"`
}

// scheduled returns a thread's scheduling in one line.
func scheduled(policy string, priority, nice int, a SchedAttr) (how string) {
	switch policy {
	case "fifo", "rr":
		how = fmt.Sprintf("SCHED_%s %d", strings.ToUpper(policy), priority)
	case "deadline":
		how = fmt.Sprintf("SCHED_DEADLINE %v within %v of %v", time.Duration(a.Runtime), time.Duration(a.Deadline),
			time.Duration(a.Period))
	case "other":
		how = fmt.Sprintf("nice %d", nice)
	default:
		how = fmt.Sprintf("policy %s, nice %d", policy, nice)
	}
	if a.SchedFlags != 0 {
		how += fmt.Sprintf(", flags %d", a.SchedFlags)
	}
	return how
}

// chrtLines returns the chrt(1) and renice(1) command lines for a thread.
func chrtLines(policy string, priority, nice int, a SchedAttr, pid string) []string {
	reset := ""
	if a.SchedFlags&1 != 0 {
		reset = "--reset-on-fork "
	}
	switch policy {
	case "fifo", "rr":
		return one(fmt.Sprintf("chrt %s--%s -p %d %s", reset, policy, priority, pid))
	case "deadline":
		return one(fmt.Sprintf("chrt %s--deadline --sched-runtime %d --sched-deadline %d --sched-period %d -p 0 %s",
			reset, a.Runtime, a.Deadline, a.Period, pid))
	}
	return []string{fmt.Sprintf("chrt %s--%s -p 0 %s", reset, policy, pid),
		fmt.Sprintf("renice -n %d -p %s", nice, pid)}
}

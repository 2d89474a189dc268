// SPDX-License-Identifier: Apache-2.0

package device

// A SchedAttr is what sched_setattr(2) gives a thread beside a policy, a priority
// and a nice value. niclane asks for none of it, and puts back what was there.
type SchedAttr struct {
	// Runtime, Deadline and Period are in nanoseconds, with the policy "deadline".
	Runtime  uint64 `json:"runtime,omitempty"`
	Deadline uint64 `json:"deadline,omitempty"`
	Period   uint64 `json:"period,omitempty"`
	// SchedFlags are reset on fork (1), reclaim (2) and overrun (4).
	SchedFlags uint64 `json:"schedFlags,omitempty"`
}

// SPDX-License-Identifier: Apache-2.0

// Package verify compares the kernel's present state with the state after the apply, and with the
// promises of a lane. It says in plain words what each difference means for the lane. Its callers
// read the data. It repairs nothing. If the data proves nothing, the answer is "unknown" and not
// "ok".
package verify

import (
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A Severity is the result of one check.
type Severity string

// The severities.
const (
	Drift   Severity = "drift"   // not as niclane left it, or not as a lane promises
	Unknown Severity = "unknown" // neither drift nor ok could be shown
	OK      Severity = "ok"
)

// A Finding is the result of one comparison.
type Finding struct {
	Severity Severity `json:"severity"`
	// Lane is the lane's name, "" if the finding is about no single lane.
	Lane   string      `json:"lane,omitempty"`
	Device string      `json:"device,omitempty"`
	Part   device.Part `json:"part,omitempty"`
	// Key is the object's key, "" if the finding is not about one object.
	Key string `json:"key,omitempty"`
	// Want is the value that niclane wrote, or, for an object that niclane did not write, the value
	// right after the apply. Found is the present value.
	Want  string `json:"want,omitempty"`
	Found string `json:"found,omitempty"`
	// Meaning says what the result means for the lane. Repair says what to do.
	Meaning string `json:"meaning"`
	Repair  string `json:"repair,omitempty"`
	// With are the keys of objects that are missing because of this finding.
	With []string `json:"with,omitempty"`
}

// Applied is what was applied from one lanes file. It comes from the file's journal.
type Applied struct {
	Config string
	// Bond is the bond whose slaves the lanes span, "" if the file lists the
	// devices.
	Bond string
	// Sharing are the slaves that share the lanes' rates, ascending. It is empty if each slave has
	// the full rates.
	Sharing []string
	Lanes   []plan.FittedLane
	// Displaced describes where devices of the lanes are now, if they no longer have their names
	// here. The key is the old name. verify ignores another device that has the old name now.
	Displaced map[string]string
	// Owned are the objects that niclane has written, in order.
	Owned []plan.Record
	// Ended says that all steps of the plan were made.
	Ended bool
	// Left is the number of objects that an unfinished rollback has not restored. There are then no
	// lanes.
	Left int
	// State is the state right after the apply, nil if not known. verify needs it to find changes of
	// objects that niclane does not own.
	State *device.State
}

// Found returns the number of findings with the severity s.
func Found(fs []Finding, s Severity) int {
	n := 0
	for _, f := range fs {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// SPDX-License-Identifier: Apache-2.0

// Package verify compares the state after apply, and the promises of a lane, with the
// kernel's present state. It says in plain words what every difference means for the lane. It
// computes from data that its callers have read. It repairs nothing, and answers "unknown"
// rather than "ok" if the data proves nothing.
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
	Unknown Severity = "unknown" // neither could be shown
	OK      Severity = "ok"
)

// A Finding is the result for one thing that verify compared.
type Finding struct {
	Severity Severity `json:"severity"`
	// Lane is "" for what belongs to no single lane.
	Lane   string      `json:"lane,omitempty"`
	Device string      `json:"device,omitempty"`
	Part   device.Part `json:"part,omitempty"`
	// Key is the object's key, "" if the finding is about several objects.
	Key string `json:"key,omitempty"`
	// Want is the value that niclane wrote, or that was there right after
	// apply. Found is the present value.
	Want  string `json:"want,omitempty"`
	Found string `json:"found,omitempty"`
	// Meaning says what the result means for the lane, Repair what to do.
	Meaning string `json:"meaning"`
	Repair  string `json:"repair,omitempty"`
	// With are the keys of objects that are missing because of this one.
	With []string `json:"with,omitempty"`
}

// Applied is what was applied from one lanes file: the content of its journal.
type Applied struct {
	Config string
	// Bond is the bond whose slaves the lanes span, "" if the file lists the
	// devices.
	Bond string
	// Sharing are the bond's slaves that share the lanes' rates, ascending. It
	// is empty if each slave has the full rates.
	Sharing []string
	Lanes   []plan.FittedLane
	// Displaced says, by old name, where devices of the lanes are now that no longer have
	// their names here. verify ignores the devices that have these names now.
	Displaced map[string]string
	// Owned are the objects that niclane has written, in order.
	Owned []plan.Record
	// Ended says that all steps were made.
	Ended bool
	// Left is the number of objects that an unfinished rollback has left. There are then no
	// lanes.
	Left int
	// State is the state right after apply, nil if not known. From it verify
	// finds changes of objects that niclane does not own.
	State *device.State
}

// Found counts the findings of a severity.
func Found(fs []Finding, s Severity) int {
	n := 0
	for _, f := range fs {
		if f.Severity == s {
			n++
		}
	}
	return n
}

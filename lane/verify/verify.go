// SPDX-License-Identifier: Apache-2.0

// Package verify compares what apply left, and what a lane promises, with the
// kernel as it is, and says in plain words what every difference means for the
// lane. It computes from what others have read; it repairs nothing, and says
// "unknown" rather than "ok" where nothing was shown.
package verify

import (
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A Severity is what a finding amounts to.
type Severity string

// The severities.
const (
	Drift   Severity = "drift"   // not as niclane left it, or not as a lane promises
	Unknown Severity = "unknown" // could not be shown either way
	OK      Severity = "ok"
)

// A Finding is one thing that was looked at.
type Finding struct {
	Severity Severity `json:"severity"`
	// Lane is "" for what belongs to no lane alone.
	Lane   string      `json:"lane,omitempty"`
	Device string      `json:"device,omitempty"`
	Part   device.Part `json:"part,omitempty"`
	// Key of the object, "" where it is about more than one.
	Key string `json:"key,omitempty"`
	// Want is what niclane wrote, or what was there when it had applied;
	// Found what is there now.
	Want  string `json:"want,omitempty"`
	Found string `json:"found,omitempty"`
	// Meaning says what it means for the lane, Repair what to do.
	Meaning string `json:"meaning"`
	Repair  string `json:"repair,omitempty"`
	// With are the keys of objects that are gone because of this one.
	With []string `json:"with,omitempty"`
}

// Applied is what one lanes file made: the content of its journal.
type Applied struct {
	Config string
	// Bond is the bond whose slaves the lanes span, "" if the file lists the
	// devices.
	Bond string
	// Sharing are those of its slaves over which the lanes' rates were shared
	// out, ascending; none where each has them whole.
	Sharing []string
	Lanes   []plan.FittedLane
	// Displaced says, in words, where devices of the lanes are now that are not here by
	// the names that they had. What has these names is not looked at.
	Displaced map[string]string
	// Owned are the objects that niclane has written, in order.
	Owned []plan.Record
	// Ended says that all steps were made.
	Ended bool
	// Left is how many objects an unfinished rollback has left. There are no lanes
	// then.
	Left int
	// State is that right after apply, nil if it is not known. What changed
	// since without being owned is found from it.
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

// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/niclane/niclane/lane/verify"
)

// Kinds of events.
const (
	Begun    = "begun"    // the lanes of a file are kept from now on
	Ended    = "ended"    // they are no more: rolled back, or the keeper ends
	Drift    = "drift"    // something is not as niclane left it
	Repaired = "repaired" // and is again
	Returned = "returned" // and is again, by somebody else's hand
	Waiting  = "waiting"  // nothing can be repaired before something happens
	Failed   = "failed"   // it could not be repaired
	Left     = "left"     // it is not repaired any more
	Released = "released" // what would have harmed a lane meanwhile was undone
	Notice   = "notice"   // what somebody may want to know
)

// An Event is something that happened, on one line.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Config string    `json:"config,omitempty"`
	Device string    `json:"device,omitempty"`
	Lane   string    `json:"lane,omitempty"`
	Key    string    `json:"key,omitempty"`
	Want   string    `json:"want,omitempty"`
	Found  string    `json:"found,omitempty"`
	// Text says it in words.
	Text string `json:"text"`
	// After is how long after it was told that something changed, ns.
	After time.Duration `json:"afterNs,omitempty"`
	// Objects that were written, or are gone because of this one.
	Objects []string `json:"objects,omitempty"`
}

// of gives an event about a finding.
func of(kind, config string, f verify.Finding) Event {
	return Event{Kind: kind, Config: config, Device: f.Device, Lane: f.Lane, Key: f.Key, Want: f.Want, Found: f.Found}
}

// String gives the event on one line, without its time.
func (e Event) String() string {
	s := e.Kind
	if e.Device != "" {
		s += " " + e.Device
	}
	if e.Lane != "" {
		s += " lane " + e.Lane
	}
	if e.Key != "" {
		s += " " + e.Key
	}
	s += ": " + e.Text
	if e.Want != "" || e.Found != "" {
		s += fmt.Sprintf(" (want %s; found %s)", e.Want, e.Found)
	}
	if e.After > 0 {
		s += fmt.Sprintf(" [%v]", e.After.Round(100*time.Microsecond))
	}
	return s
}

// WriteText writes events for people: the time of day, and what happened.
func WriteText(w io.Writer) func(Event) {
	return func(e Event) { fmt.Fprintln(w, e.Time.Format("15:04:05.000"), e) }
}

// WriteJSON writes events for programs, one JSON document on each line.
func WriteJSON(w io.Writer) func(Event) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return func(e Event) { _ = enc.Encode(e) } // who reads has gone: nobody to tell
}

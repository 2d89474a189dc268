// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/niclane/niclane/lane/verify"
)

// The values of Event.Kind.
const (
	Begun    = "begun"    // the keeper starts to keep the lanes of a file
	Ended    = "ended"    // the keeper keeps the lanes no longer: they were rolled back, or the keeper ends
	Drift    = "drift"    // an object differs from what niclane wrote
	Repaired = "repaired" // niclane has restored the object
	Returned = "returned" // another program has restored the object
	Waiting  = "waiting"  // a device or control group is not ready for repairs
	Failed   = "failed"   // a repair failed
	Left     = "left"     // niclane no longer repairs the object
	Released = "released" // niclane has undone settings that would harm an incomplete lane
	Notice   = "notice"   // other information
)

// An Event is a change, a repair or a notice. Its text is one line.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Config string    `json:"config,omitempty"`
	Device string    `json:"device,omitempty"`
	Lane   string    `json:"lane,omitempty"`
	Key    string    `json:"key,omitempty"`
	Want   string    `json:"want,omitempty"`
	Found  string    `json:"found,omitempty"`
	// Text is the description of the event.
	Text string `json:"text"`
	// After is the time from the kernel's notification until the event, in ns.
	After time.Duration `json:"afterNs,omitempty"`
	// Objects are keys of objects: of those that niclane has written, or of those that are missing
	// because this one is missing.
	Objects []string `json:"objects,omitempty"`
}

// of returns an event about a finding.
func of(kind, config string, f verify.Finding) Event {
	return Event{Kind: kind, Config: config, Device: f.Device, Lane: f.Lane, Key: f.Key, Want: f.Want, Found: f.Found}
}

// String returns the event as one line of text, without its time.
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

// WriteText returns a function that writes each event as one line of text. The line starts with the
// time of day.
func WriteText(w io.Writer) func(Event) {
	return func(e Event) { fmt.Fprintln(w, e.Time.Format("15:04:05.000"), e) }
}

// WriteJSON returns a function that writes each event as one line of JSON.
func WriteJSON(w io.Writer) func(Event) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return func(e Event) { _ = enc.Encode(e) } // an error means that nobody reads the events, so ignore it
}

// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"time"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// Version is the version of the file format.
const Version = 2

// A Head is the part of a journal that is written before the first step.
type Head struct {
	Host
	// Config is the absolute path of the config file, ConfigText its bytes.
	Config     string `json:"config"`
	ConfigText string `json:"configText"`
	// Who ran which command, and when.
	Who  Who       `json:"who"`
	When time.Time `json:"when"`
	// Generation counts the plans that were applied from this config since
	// nothing of it was owned: 1, 2, ...
	Generation int `json:"generation"`
	// Devices of all generations, ascending.
	Devices []string `json:"devices"`
	// Ground is what identifies the devices and control groups of all generations; of
	// a journal of an older niclane it is empty.
	Ground plan.Ground `json:"ground"`
	// Undoable keeps the journal that this one replaces, for Revert.
	Undoable bool `json:"-"`
	// Before is what earlier generations owned when this one began.
	Before []Record `json:"-"`
	// Plan of this generation.
	Plan *plan.Plan `json:"-"`
}

// headJSON is a Head without its records and its plan's steps, which follow it
// line by line, without what readers of a plan want (the command lines).
type headJSON struct {
	*headFields
	Plan *plan.Plan `json:"plan"`
}

type headFields Head

type stepJSON struct {
	Old        *object     `json:"old"`
	New        *object     `json:"new"`
	Part       device.Part `json:"part,omitempty"`
	Reason     string      `json:"reason,omitempty"`
	Cause      string      `json:"cause,omitempty"`
	Disruptive bool        `json:"disruptive,omitempty"`
}

// form is the head without records and steps.
func (h *Head) form() headJSON {
	j := headJSON{headFields: (*headFields)(h)}
	if h.Plan != nil {
		p := *h.Plan
		p.Steps, j.Plan = nil, &p
	}
	return j
}

// MarshalJSON implements json.Marshaler, without records and steps.
func (h *Head) MarshalJSON() ([]byte, error) { return json.Marshal(h.form()) }

// UnmarshalJSON implements json.Unmarshaler, without records and steps.
func (h *Head) UnmarshalJSON(b []byte) error {
	j := headJSON{headFields: (*headFields)(h)}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if h.Plan = j.Plan; h.Plan != nil {
		h.Plan.Steps = nil
	}
	return nil
}

// An object is a device.Object in the form of device.MarshalObject; nil is
// absence.
type object struct {
	Kind  string        `json:"kind"`
	Value device.Object `json:"value"`
}

func envelope(o device.Object) *object {
	if o == nil {
		return nil
	}
	return &object{o.Kind(), o}
}

func (o *object) open() device.Object {
	if o == nil {
		return nil
	}
	return o.Value
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *object) UnmarshalJSON(b []byte) (err error) {
	o.Value, err = device.UnmarshalObject(b)
	return err
}

// Who is the process that applied.
type Who struct {
	UID     int      `json:"uid"`
	Login   string   `json:"login,omitempty"` // SUDO_USER, if it is set
	PID     int      `json:"pid"`
	Command []string `json:"command"`
}

// A Record is one object that niclane owns, and how far its last write got.
type Record struct {
	plan.Record
	// Uncertain says that the write of Last was begun but not seen to end:
	// the present value may be anything on the way.
	Uncertain bool
	// Next is what an uncertain write was to make of the object, nil if that is
	// Last or Original.
	Next device.Object
	// key is Key, once known: of a thousand members, making keys is most of
	// what journals cost.
	key string
	// removed is what was there before it was, if nothing is or was.
	removed device.Object
	// line is the record in the file, "" if it is to be spelled: of a hundred members one
	// comes or goes, and the others are written as they were.
	line string
}

// Key identifies the object.
func (r Record) Key() string {
	if r.key != "" {
		return r.key
	}
	return r.Object().Key()
}

// restored reports whether the object is certainly back at its original value.
func (r Record) restored() bool { return !r.Uncertain && device.Equal(r.Original, r.Last) }

type recordJSON struct {
	Original  *object     `json:"original"`
	Last      *object     `json:"last"`
	Uncertain bool        `json:"uncertain,omitempty"`
	Next      *object     `json:"next,omitempty"`
	Part      device.Part `json:"part,omitempty"`
	Cause     string      `json:"cause,omitempty"`
}

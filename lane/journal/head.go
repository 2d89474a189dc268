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
	// Config is the absolute path of the config file; ConfigText is its content.
	Config     string `json:"config"`
	ConfigText string `json:"configText"`
	// Who is the process that applied, When the time.
	Who  Who       `json:"who"`
	When time.Time `json:"when"`
	// Generation counts the plans applied from this config since it owned
	// nothing: 1, 2, ...
	Generation int `json:"generation"`
	// Devices are those of all generations, ascending.
	Devices []string `json:"devices"`
	// Ground identifies the devices and control groups of all generations. It is empty in
	// journals of an older niclane.
	Ground plan.Ground `json:"ground"`
	// Undoable keeps the journal that this one replaces, for Revert.
	Undoable bool `json:"-"`
	// Before are the objects that earlier generations owned when this one began.
	Before []Record `json:"-"`
	// Plan is the plan of this generation.
	Plan *plan.Plan `json:"-"`
}

// headJSON is a Head without its records and its plan's steps, which follow it
// as lines, and without command lines, which only readers of a plan need.
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

// form returns the head without records and steps.
func (h *Head) form() headJSON {
	j := headJSON{headFields: (*headFields)(h)}
	if h.Plan != nil {
		p := *h.Plan
		p.Steps, j.Plan = nil, &p
	}
	return j
}

// MarshalJSON implements json.Marshaler. It leaves out records and steps.
func (h *Head) MarshalJSON() ([]byte, error) { return json.Marshal(h.form()) }

// UnmarshalJSON implements json.Unmarshaler. It reads no records and no steps.
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

// An object is a device.Object in the form of device.MarshalObject; nil means
// absent.
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

// Who identifies the process that applied.
type Who struct {
	UID     int      `json:"uid"`
	Login   string   `json:"login,omitempty"` // SUDO_USER, if it is set
	PID     int      `json:"pid"`
	Command []string `json:"command"`
}

// A Record is one object that niclane owns, and the progress of its last write.
type Record struct {
	plan.Record
	// Uncertain says that the write of Last was begun but its end was not
	// recorded. The present value may be anything between.
	Uncertain bool
	// Next is the new value of an uncertain write, nil if that is Last or
	// Original.
	Next device.Object
	// key is the cached Key: with a thousand members, making keys is most of
	// the cost of journals.
	key string
	// removed is the value before its removal, if Original and Last are nil.
	removed device.Object
	// line is the record's line in the file, "" if it must be encoded. When one of a
	// hundred members changes, the lines of the others are reused.
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

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
	// Config is the absolute path of the lanes file, ConfigText its content.
	Config     string `json:"config"`
	ConfigText string `json:"configText"`
	// Who is the process that applied the plan, When the time at which it did.
	Who  Who       `json:"who"`
	When time.Time `json:"when"`
	// Generation is the number of the plan: 1, 2, ... It counts the plans of this lanes file since
	// the last time that niclane owned no object of it.
	Generation int `json:"generation"`
	// Devices are the devices of all generations, ascending.
	Devices []string `json:"devices"`
	// Ground identifies the devices and control groups of all generations. It is empty in
	// journals of an older niclane.
	Ground plan.Ground `json:"ground"`
	// Undoable says to keep the journal that this one replaces. Revert needs it.
	Undoable bool `json:"-"`
	// Before are the objects that niclane owned from earlier generations when this generation began.
	Before []Record `json:"-"`
	// Plan is the plan of this generation.
	Plan *plan.Plan `json:"-"`
}

// headJSON is the JSON form of a Head. It has no records and no steps, because these follow as
// lines. It has no command lines, because only people who read a plan need them.
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

// form returns the JSON form of the head.
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

// An object is a device.Object in the form of device.MarshalObject. A nil *object is an absent
// object.
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

// Who identifies the process that applied a plan.
type Who struct {
	UID     int      `json:"uid"`
	Login   string   `json:"login,omitempty"` // SUDO_USER, if it is set
	PID     int      `json:"pid"`
	Command []string `json:"command"`
}

// A Record is one object that niclane owns, with the progress of its last write.
type Record struct {
	plan.Record
	// Uncertain says that a write of the object has begun and that its end is not recorded. The
	// present value may be the old one, the new one, or something between.
	Uncertain bool
	// Next is the new value of an uncertain write. It is nil if that value is Last or Original.
	Next device.Object
	// key is the cached result of Key. With a thousand members, computing keys would be most of the
	// journal's cost.
	key string
	// removed is the value that the object had before niclane removed it. It is set only if Original
	// and Last are nil.
	removed device.Object
	// line is the record's line in the file, "" if the record must be encoded. If one of a hundred
	// members changes, the lines of the others are used again.
	line string
}

// Key identifies the object.
func (r Record) Key() string {
	if r.key != "" {
		return r.key
	}
	return r.Object().Key()
}

// restored reports whether the object certainly has its original value again.
func (r Record) restored() bool { return !r.Uncertain && device.Equal(r.Original, r.Last) }

type recordJSON struct {
	Original  *object     `json:"original"`
	Last      *object     `json:"last"`
	Uncertain bool        `json:"uncertain,omitempty"`
	Next      *object     `json:"next,omitempty"`
	Part      device.Part `json:"part,omitempty"`
	Cause     string      `json:"cause,omitempty"`
}

// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"time"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/plan"
)

// Version is the version of the file format.
const Version = 1

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
	// Before is what earlier generations owned when this one began.
	Before []Record `json:"before,omitempty"`
	// Plan of this generation.
	Plan *plan.Plan `json:"plan"`
}

// Who is the process that applied.
type Who struct {
	UID     int      `json:"uid"`
	Login   string   `json:"login,omitempty"` // SUDO_USER, if it is set
	PID     int      `json:"pid"`
	Command []string `json:"command"`
}

// A Record is one object that niclane owns.
type Record struct {
	// Original is the value before niclane's first write; nil: absent.
	Original device.Object
	// Last is what niclane last wrote; nil: absent.
	Last device.Object
	// Uncertain says that the write of Last was begun but not seen to end:
	// the present value may be anything on the way.
	Uncertain bool
	Part      device.Part
	// Cause is the config path that first asked for the object.
	Cause string
}

// Object returns Last, or Original if niclane removed the object.
func (r Record) Object() device.Object {
	if r.Last != nil {
		return r.Last
	}
	return r.Original
}

// Key identifies the object.
func (r Record) Key() string { return r.Object().Key() }

// settled reports whether the object is certainly back at its original value.
func (r Record) settled() bool { return !r.Uncertain && device.Equal(r.Original, r.Last) }

type recordJSON struct {
	Original  json.RawMessage `json:"original"`
	Last      json.RawMessage `json:"last"`
	Uncertain bool            `json:"uncertain,omitempty"`
	Part      device.Part     `json:"part,omitempty"`
	Cause     string          `json:"cause,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (r Record) MarshalJSON() ([]byte, error) {
	original, err := device.MarshalObject(r.Original)
	if err != nil {
		return nil, err
	}
	last, err := device.MarshalObject(r.Last)
	if err != nil {
		return nil, err
	}
	return json.Marshal(recordJSON{original, last, r.Uncertain, r.Part, r.Cause})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Record) UnmarshalJSON(b []byte) error {
	var j recordJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	original, err := unmarshalOptional(j.Original)
	if err != nil {
		return err
	}
	last, err := unmarshalOptional(j.Last)
	if err != nil {
		return err
	}
	*r = Record{original, last, j.Uncertain, j.Part, j.Cause}
	return nil
}

func unmarshalOptional(b json.RawMessage) (device.Object, error) {
	if b == nil {
		return nil, nil
	}
	return device.UnmarshalObject(b)
}

// SPDX-License-Identifier: Apache-2.0

// Package plan turns an intent and a device's state into an ordered list of
// steps, each with its reason, its inverse and the command line an
// administrator would have typed. It is pure: it reads and changes nothing,
// and the same input gives the same bytes. It refuses, before anything
// changes, what the device cannot do.
package plan

import (
	"encoding/json"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A Step changes one kernel object from Old to New; nil means absent. Both
// have the same key.
type Step struct {
	Old, New device.Object
	// Part of a lane that the step belongs to.
	Part device.Part
	// Reason says why, for the person who audits the plan.
	Reason string
	// Cause is the config path that asked for it: "lanes.memcached.queues".
	Cause string
	// Disruptive steps can lose packets or flap the link.
	Disruptive bool
}

// Object returns New, or Old when the step removes the object.
func (s Step) Object() device.Object {
	if s.New != nil {
		return s.New
	}
	return s.Old
}

// Key identifies the object that the step changes.
func (s Step) Key() string { return s.Object().Key() }

// Commands returns the command lines that would do the same.
func (s Step) Commands() []string { return device.Change{Old: s.Old, New: s.New}.Commands() }

// Inverse returns the step that undoes s.
func (s Step) Inverse() Step {
	s.Old, s.New = s.New, s.Old
	return s
}

type stepJSON struct {
	Key        string          `json:"key"`
	Old        json.RawMessage `json:"old"`
	New        json.RawMessage `json:"new"`
	Part       device.Part     `json:"part"`
	Reason     string          `json:"reason"`
	Cause      string          `json:"cause"`
	Disruptive bool            `json:"disruptive,omitempty"`
	Commands   []string        `json:"commands,omitempty"`
}

// MarshalJSON adds the key and the rendered command lines for readers.
func (s Step) MarshalJSON() ([]byte, error) {
	oldJSON, err := device.MarshalObject(s.Old)
	if err != nil {
		return nil, err
	}
	newJSON, err := device.MarshalObject(s.New)
	if err != nil {
		return nil, err
	}
	return json.Marshal(stepJSON{
		Key: s.Key(), Old: oldJSON, New: newJSON, Part: s.Part, Reason: s.Reason,
		Cause: s.Cause, Disruptive: s.Disruptive, Commands: s.Commands(),
	})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Step) UnmarshalJSON(b []byte) error {
	var j stepJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	oldObj, err := device.UnmarshalObject(j.Old)
	if err != nil {
		return err
	}
	newObj, err := device.UnmarshalObject(j.New)
	if err != nil {
		return err
	}
	*s = Step{Old: oldObj, New: newObj, Part: j.Part, Reason: j.Reason, Cause: j.Cause, Disruptive: j.Disruptive}
	return nil
}

// A Choice is how one part of a lane is made, and why nothing better is.
type Choice struct {
	// Device is the device of a plan's choice; Choose leaves it out.
	Device    string      `json:"device,omitempty"`
	Part      device.Part `json:"part"`
	Mechanism string      `json:"mechanism"` // "" if none is possible
	Reason    string      `json:"reason"`
	// Rejected mechanisms, best first.
	Rejected []Rejection `json:"rejected,omitempty"`
}

// A Rejection is a mechanism that was not chosen.
type Rejection struct {
	Mechanism string `json:"mechanism"`
	Why       string `json:"why"`
}

// A Plan is complete before anything changes.
type Plan struct {
	// Devices the plan belongs to, ascending.
	Devices []string `json:"devices"`
	Steps   []Step   `json:"steps"`
	// Lanes as fitted to each device, the default lane first.
	Lanes   []FittedLane `json:"lanes,omitempty"`
	Choices []Choice     `json:"choices,omitempty"`
	// Notes are what the person should know but need not act on.
	Notes []string `json:"notes,omitempty"`
	// Sharing are the slaves of a bond over whose links the lanes' rates in
	// bit/s are shared out, ascending: those by which it sends. None where
	// there are no such rates, or each device has them whole.
	Sharing []string `json:"sharing,omitempty"`
	// Gone are devices that the file had, has no more, and that exist no more,
	// ascending: what was niclane's there went with them.
	Gone []string `json:"gone,omitempty"`
	// Ground is what the plan stands on, for whoever undoes it.
	Ground Ground `json:"-"`
	// Forget are the keys of those objects, and of what else is there no more
	// and is not wanted. Nothing is left to undo of them.
	Forget []string `json:"-"`
}

// A Ground is the devices and control groups of a plan by what identifies them, which
// names do not: both can get another name, and give theirs to others.
type Ground struct {
	// Links are the devices, in the order of Plan.Devices.
	Links []device.Link `json:"links,omitempty"`
	// Groups are the inode numbers of control groups, by directory.
	Groups map[string]uint64 `json:"groups,omitempty"`
}

// A FittedLane is a lane on one device: what it has there when the plan has
// been made true.
type FittedLane struct {
	Name   string `json:"name"`
	Device string `json:"device"`
	// Context is niclane's number of its RSS context, 0 for the default.
	Context int   `json:"context"`
	Queues  []int `json:"queues"`
	CPUs    []int `json:"cpus"`
	// Receives and Sends say whether the lane has queues of its own for that.
	Receives Place `json:"receives,omitempty"`
	Sends    Place `json:"sends,omitempty"`
	// Class is its HTB class, "" if nothing is shaped.
	Class string `json:"class,omitempty"`
	Rank  int    `json:"rank"`
	// Guarantee and Ceiling are in bit/s, 0 for none.
	Guarantee uint64 `json:"guarantee,omitempty"`
	Ceiling   uint64 `json:"ceiling,omitempty"`
	// Poller polls the lane's queues; "" stands for interrupts.
	Poller intent.PollerKind `json:"poller,omitempty"`
	// Aligned says that one of its applications places its threads by NAPI ID.
	Aligned bool `json:"aligned,omitempty"`
}

// A Place is where packets of a lane are received, or by what they are sent.
type Place string

// The places of a lane's packets.
const (
	InQueues     Place = "queues"     // queues that no other lane has
	OnProcessors Place = "processors" // shared queues; an XDP program moves them to the lane's processors
	InShared     Place = "shared"     // shared queues
)

// Owned is what the journal says is ours: for every object that niclane has
// written, its value before the first write.
type Owned struct {
	Records []Record `json:"records,omitempty"`
	// Keys are those of Records, in their order, if somebody has them
	// already; otherwise nil.
	Keys []string `json:"-"`
}

// A Record is one object of ours. At least one of Original and Last is not nil.
type Record struct {
	// Original is what was there before niclane first wrote it; nil: absent.
	Original device.Object
	// Last is what niclane last wrote, or was about to write; nil: absent.
	Last device.Object
	Part device.Part
	// Cause is the config path that last asked for it.
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

// SPDX-License-Identifier: Apache-2.0

// Package plan turns an intent and a device's state into an ordered list of steps. Each step has
// its reason, its inverse and the equivalent command line. The package is pure: it reads and
// changes nothing, and the same input gives the same bytes. If the device cannot do what the
// intent asks for, planning fails before anything changes.
package plan

import (
	"encoding/json"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A Step changes one kernel object from Old to New; nil means absent. Both have
// the same key.
type Step struct {
	Old, New device.Object
	// Part is the part of a lane that the step belongs to.
	Part device.Part
	// Reason says why the step is necessary, for the reader of the plan.
	Reason string
	// Cause is the config path that asked for the step: "lanes.memcached.queues".
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

// Commands returns command lines with the same effect as the step.
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

// MarshalJSON adds the key and the command lines, for readers of the JSON.
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

// UnmarshalJSON reads the output of MarshalJSON.
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

// A Choice is the mechanism that was chosen for one part of a lane, with the reasons against
// better ones.
type Choice struct {
	// Device is the device that the choice is for. Choices of a Plan have it; Choose does not set
	// it.
	Device    string      `json:"device,omitempty"`
	Part      device.Part `json:"part"`
	Mechanism string      `json:"mechanism"` // "" if none is possible
	Reason    string      `json:"reason"`
	// Rejected are the mechanisms that would be better but were not chosen, best first.
	Rejected []Rejection `json:"rejected,omitempty"`
}

// A Rejection is a mechanism that was not chosen.
type Rejection struct {
	Mechanism string `json:"mechanism"`
	Why       string `json:"why"`
}

// A Plan is the complete list of steps, made before anything changes.
type Plan struct {
	// Devices are the devices of the plan, ascending.
	Devices []string `json:"devices"`
	Steps   []Step   `json:"steps"`
	// Lanes are the lanes on each device, the default lane first.
	Lanes   []FittedLane `json:"lanes,omitempty"`
	Choices []Choice     `json:"choices,omitempty"`
	// Notes are facts that the user should know. They need no action.
	Notes []string `json:"notes,omitempty"`
	// Sharing are the bond's slaves that share the lanes' rates in bit/s, ascending. The bond sends
	// on these slaves. Sharing is empty if no lane has a rate in bit/s, or if each device has the
	// full rates.
	Sharing []string `json:"sharing,omitempty"`
	// Gone are devices of an earlier plan that are no longer in the file and no longer exist,
	// ascending. niclane's objects on them disappeared with them.
	Gone []string `json:"gone,omitempty"`
	// Ground identifies the plan's devices and control groups, for a later rollback.
	Ground Ground `json:"-"`
	// Forget are the keys of objects that are absent, unwanted and need no undo: objects on devices
	// in Gone, and others that no longer exist.
	Forget []string `json:"-"`
}

// A Ground identifies the devices and control groups of a plan for a later rollback. A name does
// not identify them: both can be renamed, and a new one can get the old name.
type Ground struct {
	// Links are the devices, in the order of Plan.Devices.
	Links []device.Link `json:"links,omitempty"`
	// Groups maps the directories of control groups to their inode numbers.
	Groups map[string]uint64 `json:"groups,omitempty"`
}

// A FittedLane is a lane on one device, as the plan makes it.
type FittedLane struct {
	Name   string `json:"name"`
	Device string `json:"device"`
	// Context is the number of the lane's RSS context, 0 for the default lane.
	Context int   `json:"context"`
	Queues  []int `json:"queues"`
	CPUs    []int `json:"cpus"`
	// Receives and Sends say whether the lane has its own queues for receiving and for sending.
	Receives Place `json:"receives,omitempty"`
	Sends    Place `json:"sends,omitempty"`
	// Class is the lane's HTB class, "" for none. Departs says that the lanes share the link by departure
	// times.
	Class   string `json:"class,omitempty"`
	Departs bool   `json:"departs,omitempty"`
	Rank    int    `json:"rank"`
	// Guarantee and Ceiling are in bit/s, 0 for none.
	Guarantee uint64 `json:"guarantee,omitempty"`
	Ceiling   uint64 `json:"ceiling,omitempty"`
	// DSCP is the DSCP with which the lane's packets leave (device.FormatDSCP). "" means that niclane
	// does not change it.
	DSCP string `json:"dscp,omitempty"`
	// PCP is the same of the packets' VLAN tag (device.FormatPCP).
	PCP string `json:"pcp,omitempty"`
	// Poller is the kind of poller of the lane's queues. "" means interrupts.
	Poller intent.PollerKind `json:"poller,omitempty"`
	// Aligned says that one of the lane's applications places its threads by NAPI ID.
	Aligned bool `json:"aligned,omitempty"`
}

// A Place says in which kind of queues a lane receives or sends its packets.
type Place string

// The places of a lane's packets.
const (
	InQueues     Place = "queues"     // queues that belong to no other lane
	OnProcessors Place = "processors" // shared queues; an XDP program moves the packets to the lane's processors
	InShared     Place = "shared"     // queues that other lanes use too
)

// Owned has the objects that belong to niclane, from the journal. For every object that niclane
// has written, it has the value before the first write.
type Owned struct {
	Records []Record `json:"records,omitempty"`
	// Keys are the keys of Records in the same order. nil: Make and Undo compute them.
	Keys []string `json:"-"`
}

// A Record is one object that belongs to niclane. At least one of Original and Last is not nil.
type Record struct {
	// Original is the value before niclane first wrote the object; nil: absent.
	Original device.Object
	// Last is the value that niclane last wrote or was about to write; nil: absent.
	Last device.Object
	Part device.Part
	// Cause is the config path that last asked for the object.
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

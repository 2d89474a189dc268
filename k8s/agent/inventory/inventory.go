// SPDX-License-Identifier: Apache-2.0

// Package inventory is what lies between a node's agent and the ways in which its
// lanes are offered to Kubernetes: which classes the node has now, which of their
// units are free, held or unhealthy, and who holds them. The device plugin and
// the DRA driver read an Inventory; they never see the card.
package inventory

import (
	"context"
	"errors"

	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/lane/intent"
)

// An Inventory is the classes of one node. The agent implements it; it is safe
// for concurrent use. Nothing in it waits for the network or the API server.
type Inventory interface {
	// Now returns the classes as they are. The caller may keep what it gets;
	// nobody changes it.
	Now() *Snapshot
	// Changed returns a channel that is closed as soon as Now would return a
	// Snapshot of another Version: at once if it would already.
	Changed(version uint64) <-chan struct{}
	// Hold records that a claim's pods have units. It is idempotent: the same
	// hold again is nil. It does not steer anything yet: that happens when the
	// pod has its address (CNI ADD), or at once for pods of the host network.
	// Errors: ErrNoClass, ErrNoUnit, ErrHeld (an exclusive unit, or one slot of a
	// shared class, is somebody else's), ErrUnhealthy; nothing is recorded
	// then. On disk before it returns.
	Hold(ctx context.Context, h Hold) error
	// Release forgets a hold by its key and ends its steering. One that is
	// unknown is nil.
	Release(ctx context.Context, key string) error
	// Holds returns all that are recorded, by key, ascending: also those of
	// before a restart.
	Holds() []Hold
}

// Errors of Hold. They are wrapped in what says which class, unit and holder.
var (
	ErrNoClass   = errors.New("no such class on this node")
	ErrNoUnit    = errors.New("the class has no such unit")
	ErrHeld      = errors.New("the unit is held by another")
	ErrUnhealthy = errors.New("the unit is not healthy")
)

// A Snapshot is all classes at one time.
type Snapshot struct {
	// Version rises with every change.
	Version uint64
	// Node is the node's name in Kubernetes.
	Node string
	// Device that the lanes are on, nil while there is none: no policy selects
	// the node, or its device is absent. Of several (a bond's slaves) the first.
	Device *Device
	// Classes in the order of the policy.
	Classes []Class
}

// A Device is where lanes are.
type Device struct {
	Name   string
	Driver string
	// PCI is the bus address ("0000:3b:00.0"), "" if it has none.
	PCI string
	// NUMA is its node, -1 if it says none.
	NUMA int
	// Speed of the link in bit/s, 0 if unknown.
	Speed uint64
}

// A Class is a kind of lane as it is made on this node.
type Class struct {
	Name string
	// Mode: of an exclusive class each unit is a queue set; of a shared one each
	// is a place for one pod in the class's only queue set.
	Mode intent.Mode
	// OfferedAs is v1alpha1.OfferedAsResource or OfferedAsClaim.
	OfferedAs string
	// ResourceName of a class that is offered as a resource.
	ResourceName string
	// Queues of each queue set.
	Queues int
	// Guarantee and Ceiling of each queue set on transmit, bit/s; 0: none.
	Guarantee, Ceiling uint64
	Rank               int
	// Poller as the policy says it, "auto" if it does not.
	Poller string
	// Mechanisms by part of a lane ("queue-set": "rss-context", "poller":
	// "napi-thread"): what the lanes are made of on this device.
	Mechanisms map[string]string
	// Units ascending by number. A class that is going away, because the
	// policy has it no more while pods are in it, has only the held ones.
	Units []Unit
}

// A Unit is what one pod can have of a class.
type Unit struct {
	// ID is unique on the node and stays the same for as long as the class
	// exists: "redis-0". It is the device ID for kubelet, and valid as the name
	// of a device in a ResourceSlice.
	ID string
	// Lane is the lane's name in lanes.yaml's words: the unit's own of an
	// exclusive class ("redis-0"), the class's of a shared one ("web").
	Lane string
	// Queues of the lane's queue set on the device; nil where the mechanism
	// has none of the lane's own.
	Queues []int
	// Unhealthy says why the unit cannot be given now, "" if it can.
	Unhealthy string
	// Holder is the pod that is in the unit, nil if none is known. A unit that
	// kubelet has given to a pod that has not started yet has none.
	Holder *Holder
}

// A Holder is who has a unit.
type Holder struct {
	Namespace, Pod, UID string
	// Container of the pod, "" with a claim that several of them use.
	Container string
}

// A Hold is a claim on units that was prepared.
type Hold struct {
	// Key identifies it: the UID of the ResourceClaim.
	Key string
	// Claim is NAMESPACE/NAME, for messages.
	Claim string
	// Units it has, of any of the node's classes, at least one. Of a shared
	// class a unit is a place for one pod; Slots says how many.
	Units []Held
	// Pods that the claim is reserved for, by UID. May be empty and come with a
	// later Hold of the same key.
	Pods []string
}

// Held is one result of a claim's allocation.
type Held struct {
	Class string
	// Unit is the ID of an exclusive class's unit. Empty for a shared class: the
	// agent gives the holder a free place.
	Unit string
	// Share is the share's ID of a device that is allocated several times, "" if
	// it is not.
	Share string
	// Request of the claim that it answers.
	Request string
	// Parameters of the claim or its class, nil if there are none.
	Parameters *params.Parameters
}

// Find returns the class of that name, nil if there is none.
func (s *Snapshot) Find(class string) *Class {
	for i := range s.Classes {
		if s.Classes[i].Name == class {
			return &s.Classes[i]
		}
	}
	return nil
}

// Find returns the unit with that ID, nil if there is none.
func (c *Class) Find(id string) *Unit {
	for i := range c.Units {
		if c.Units[i].ID == id {
			return &c.Units[i]
		}
	}
	return nil
}

// String gives NAMESPACE/POD, or what is known of it.
func (h Holder) String() string {
	if h.Namespace == "" {
		return h.Pod
	}
	return h.Namespace + "/" + h.Pod
}

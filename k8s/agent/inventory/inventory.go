// SPDX-License-Identifier: Apache-2.0

// Package inventory is the interface between a node's agent and the two parts that offer the node's
// lanes to Kubernetes: the device plugin and the DRA driver. An Inventory says which classes the
// node has, which units are free, held or unhealthy, and which pod holds each unit. The device
// plugin and the DRA driver read the Inventory, never the card.
package inventory

import (
	"context"
	"errors"

	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/lane/intent"
)

// An Inventory is the set of classes of one node. The agent implements it. It is safe for
// concurrent use. No method waits for the network or the API server.
type Inventory interface {
	// Now returns the present classes. The caller may keep the snapshot: it never changes.
	Now() *Snapshot
	// Changed returns a channel that is closed as soon as the present Snapshot has another Version
	// than the given one.
	Changed(version uint64) <-chan struct{}
	// Hold records that a claim's pods have units. The record is on disk when Hold returns. Hold is
	// idempotent: the same hold again returns nil. It steers no packets; steering begins when the pod
	// is attached. Errors are ErrNoClass, ErrNoUnit, ErrHeld (another holder has the exclusive unit,
	// or the shared class has no free place) and ErrUnhealthy. After an error, nothing is recorded.
	Hold(ctx context.Context, h Hold) error
	// Release removes the hold with this key, and ends the steering of its pods' packets. It returns
	// nil for an unknown key.
	Release(ctx context.Context, key string) error
	// Holds returns all recorded holds, also those from before a restart, in ascending order of their
	// keys.
	Holds() []Hold
}

// Errors of Hold. The error that wraps them names the class, the unit and the holder.
var (
	ErrNoClass   = errors.New("no such class on this node")
	ErrNoUnit    = errors.New("the class has no such unit")
	ErrHeld      = errors.New("another pod or claim holds the unit")
	ErrUnhealthy = errors.New("the unit is not healthy")
)

// A Snapshot is the state of all classes at one time.
type Snapshot struct {
	// Version rises with every change.
	Version uint64
	// Node is the node's name in Kubernetes.
	Node string
	// Device is the device that the lanes are on. It is nil if the node has no lanes. If there are
	// several devices (a bond's slaves), it is the first one.
	Device *Device
	// Classes are the node's classes, in the order of the policy.
	Classes []Class
	// Removed says that niclane leaves the node: it offers nothing, not even an empty pool.
	Removed bool
}

// A Device is a network device with lanes.
type Device struct {
	Name   string
	Driver string
	// PCI is the bus address ("0000:3b:00.0"), "" if the device has none.
	PCI string
	// NUMA is the device's NUMA node, -1 if the device reports none.
	NUMA int
	// Speed is the link's rate in bit/s, 0 if unknown.
	Speed uint64
}

// A Class is a kind of lane as it is made on this node.
type Class struct {
	Name string
	// Mode says what a unit is. In an exclusive class, each unit is a queue set. In a shared
	// class, each unit is a place for one pod in the only queue set.
	Mode intent.Mode
	// OfferedAs is v1alpha1.OfferedAsResource or v1alpha1.OfferedAsClaim.
	OfferedAs string
	// ResourceName is the name of the extended resource, "" for a class that is offered as a claim.
	ResourceName string
	// NUMAHint is true if kubelet gets the NUMA node of the device with each unit.
	NUMAHint bool
	// HostNetwork is true if pods of the host's network may have lanes of the class.
	HostNetwork bool
	// Queues is the number of queues of each queue set.
	Queues int
	// Guarantee and Ceiling apply to each queue set on transmit, in bit/s; 0 means none.
	Guarantee, Ceiling uint64
	Rank               int
	// Poller is the policy's value, v1alpha1.PollerAuto if the policy gives none.
	Poller string
	// Mechanisms says how each part of a lane is made on this device ("queue-set":
	// "rss-context", "poller": "napi-thread").
	Mechanisms map[string]string
	// Units are in ascending order of their numbers. If the policy no longer has the class, Units has
	// only the units that pods still hold.
	Units []Unit
}

// A Unit is the part of a class that one pod can have.
type Unit struct {
	// ID is unique on the node and stays the same as long as the class exists: "redis-0". It
	// is kubelet's device ID, and valid as a device name in a ResourceSlice.
	ID string
	// Lane is the lane's name in lanes.yaml: the unit's ID in an exclusive class ("redis-0"),
	// the class's name in a shared one ("web").
	Lane string
	// Queues are the queue numbers of the lane's queue set on the device. It is nil if the
	// mechanism gives the lane no queues of its own.
	Queues []int
	// Unhealthy says why pods cannot get the unit now, "" if they can.
	Unhealthy string
	// Holder is the pod that has the unit, nil if none is known. If kubelet has given the unit to a
	// pod that has not started yet, Holder is still nil.
	Holder *Holder
}

// A Holder is the pod that has a unit. For a claim without a pod yet, Pod is the claim's name.
type Holder struct {
	Namespace, Pod, UID string
	// Container is the name of the pod's container, "" for a claim that several containers use.
	Container string
}

// A Hold is a prepared ResourceClaim with the units that it has.
type Hold struct {
	// Key is the UID of the ResourceClaim.
	Key string
	// Claim is NAMESPACE/NAME, for messages.
	Claim string
	// Units are the claim's units, at least one. They may be of several classes. A unit of a shared
	// class is a place for one pod.
	Units []Held
	// Pods are the UIDs of the pods for which the claim is reserved. If it is empty, a later Hold with
	// the same key may have them.
	Pods []string
}

// Held is one unit that was allocated to a claim.
type Held struct {
	Class string
	// Unit is the ID of the unit. If it is empty, the class is shared, and Hold chooses a free place.
	Unit string
	// Share is the share ID of a device that is allocated several times, "" otherwise.
	Share string
	// Request is the name of the request, in the claim, for which the unit was allocated.
	Request string
	// Parameters are the parameters of the claim or of its device class, nil if there are none.
	Parameters *params.Parameters
}

// Find returns the class with this name, nil if there is none.
func (s *Snapshot) Find(class string) *Class {
	for i := range s.Classes {
		if s.Classes[i].Name == class {
			return &s.Classes[i]
		}
	}
	return nil
}

// Find returns the unit with this ID, nil if there is none.
func (c *Class) Find(id string) *Unit {
	for i := range c.Units {
		if c.Units[i].ID == id {
			return &c.Units[i]
		}
	}
	return nil
}

// String returns NAMESPACE/POD, or only the pod if the namespace is not known.
func (h Holder) String() string {
	if h.Namespace == "" {
		return h.Pod
	}
	return h.Namespace + "/" + h.Pod
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A LaneNode has the lanes of one node. It has the node's name, and the node owns it. The
// node's agent makes it and writes its status. niclane-controller writes its spec, from the
// LanePolicy that the node follows. So no object grows with the number of nodes, and an agent
// reads only the object of its own node.
type LaneNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is nil until niclane-controller has seen the node.
	Spec   *LaneNodeSpec  `json:"spec,omitempty"`
	Status LaneNodeStatus `json:"status,omitempty"`
}

// A LaneNodeSpec has the parts of a LanePolicy that a node follows.
type LaneNodeSpec struct {
	// Policy is the name of the LanePolicy, and PolicyGeneration the generation that Uplink
	// and Classes are from. Policy is "" if no policy selects the node: it has no lanes then.
	Policy           string `json:"policy"`
	PolicyGeneration int64  `json:"policyGeneration,omitempty"`
	// Uplink and Classes are those of the policy.
	Uplink  Uplink  `json:"uplink,omitempty"`
	Classes []Class `json:"classes,omitempty"`
	// Remove says that niclane leaves the cluster: the agent takes everything off the node, also
	// lanes that pods use, and then does nothing. Other fields have no meaning then.
	Remove bool `json:"remove,omitempty"`
}

// A LaneNodeStatus is the state of the node's lanes.
type LaneNodeStatus struct {
	// Policy and PolicyGeneration are those of the spec that the agent has seen last.
	Policy           string `json:"policy,omitempty"`
	PolicyGeneration int64  `json:"policyGeneration,omitempty"`
	// Agent is the version of the agent that wrote the status.
	Agent string `json:"agent,omitempty"`
	// Renewed is when the agent wrote the status last. It writes at least every Renewal.
	Renewed metav1.Time `json:"renewed,omitempty"`
	// Devices that the lanes are on.
	Devices []string `json:"devices,omitempty"`
	// Classes as they are on the node.
	Classes []ClassStatus `json:"classes,omitempty"`
	// Conditions: Applied, Healthy, Offered and Steered; only Removed if the spec says remove.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Types of a LaneNode's conditions.
const (
	// Applied: the node's card is configured as the policy says.
	Applied = "Applied"
	// Healthy: the kernel still reports that configuration.
	Healthy = "Healthy"
	// Offered: kubelet has taken the node's classes, so that pods can get them.
	Offered = "Offered"
	// Steered: the agent has found no packets of pods in lanes that the card sees under
	// another address because the node translates them.
	Steered = "Steered"
	// Removed: the node has nothing of niclane any more, as the spec's generation
	// observedGeneration says.
	Removed = "Removed"
)

// Reasons of Applied. Only Refused stops a rollout.
const (
	ReasonAsThePolicySays = "AsThePolicySays"
	ReasonRefused         = "Refused"
	ReasonWaitsForPods    = "WaitsForPods"
)

// Reasons of Healthy, Offered and Steered, the one of True first. LanesDoNotHold and KubeletRefused
// stop a rollout.
const (
	ReasonLanesHold           = "LanesHold"
	ReasonLanesDoNotHold      = "LanesDoNotHold"
	ReasonKubeletHasThem      = "KubeletHasThem"
	ReasonKubeletRefused      = "KubeletRefused"
	ReasonAddressesSeen       = "AddressesAreSeen"
	ReasonAddressesTranslated = "AddressesAreTranslated"
)

// Reasons of Removed. Only NodeIsClean is with the status True.
const (
	ReasonNodeIsClean  = "NodeIsClean"
	ReasonRemoving     = "Removing"
	ReasonRemoveFailed = "RemoveFailed"
)

// A ClassStatus is the state of a class on one node.
type ClassStatus struct {
	Name string `json:"name"`
	// Total is the number of units: queue sets of an exclusive class, places for pods in a
	// shared one. InUse counts the units that pods hold, Unhealthy those that cannot be given
	// now.
	Total     int `json:"total"`
	InUse     int `json:"inUse"`
	Unhealthy int `json:"unhealthy,omitempty"`
	// Mechanism is how the queue sets are made, for example rss-context.
	Mechanism string `json:"mechanism,omitempty"`
	// Held says why the class still differs from the policy: pods are in it.
	Held string `json:"held,omitempty"`
}

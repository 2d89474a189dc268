// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A LanePolicy says which classes of lanes the nodes have that it selects. It is
// cluster-wide. A node follows one policy: of those that select it, the one with
// the highest priority; several with the same are refused there, and each says
// so in its status.
type LanePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   LanePolicySpec   `json:"spec"`
	Status LanePolicyStatus `json:"status,omitempty"`
}

// A LanePolicySpec is what somebody asks for.
type LanePolicySpec struct {
	// NodeSelector selects nodes by their labels; nil or empty: all.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Priority among policies that select the same node: the highest is the
	// node's.
	Priority int32 `json:"priority,omitempty"`
	// Uplink is the device that the lanes are on, and the default lane.
	Uplink Uplink `json:"uplink,omitempty"`
	// Classes of lanes, in the order of their queues; none takes the lanes
	// away.
	Classes []Class `json:"classes,omitempty"`
}

// An Uplink is what lanes.yaml has in globals.
type Uplink struct {
	// Dev is a network device, Bond a bond whose slaves the lanes span. With
	// neither, the device that has the node's InternalIP.
	Dev  string `json:"dev,omitempty"`
	Bond string `json:"bond,omitempty"`
	// VLANs that the lanes are kept to.
	VLANs []int `json:"vlans,omitempty"`
	// LinkRate ("10gbit") of devices that cannot say it.
	LinkRate string `json:"linkRate,omitempty"`
	// Queues of the default lane; 0: all that the classes leave.
	Queues int `json:"queues,omitempty"`
	// BusyPoll and BusyRead are sysctls of the whole node, in microseconds.
	BusyPoll *int `json:"busypoll,omitempty"`
	BusyRead *int `json:"busyread,omitempty"`
	// ARPFilter has each device answer for its own addresses only.
	ARPFilter *bool `json:"arpfilter,omitempty"`
	// RxRing and TxRing are descriptors of each ring.
	RxRing *int `json:"rxring,omitempty"`
	TxRing *int `json:"txring,omitempty"`
	// Force names mechanisms that must be used, by part of a lane.
	Force map[string]string `json:"force,omitempty"`

	Tuning `json:",inline"`
}

// Modes of a class.
const (
	// Exclusive: each pod has a queue set of its own.
	Exclusive = "exclusive"
	// Shared: one queue set, which its pods divide fairly.
	Shared = "shared"
)

// Ways in which a class is offered to the scheduler. One class is offered in one
// way, because kubelet's device manager and DRA do not know of each other.
const (
	// OfferedAsResource: the extended resource niclane.dev/CLASS.
	OfferedAsResource = "resource"
	// OfferedAsClaim: devices of the DRA driver niclane.dev.
	OfferedAsClaim = "claim"
)

// A Class is a kind of lane that pods can ask for.
type Class struct {
	// Name is 1 to 28 of a-z 0-9 -, beginning and ending with a letter or a
	// digit.
	Name string `json:"name"`
	// Mode is Exclusive or Shared; "": Exclusive.
	Mode string `json:"mode,omitempty"`
	// OfferedAs is OfferedAsResource or OfferedAsClaim; "": the former.
	OfferedAs string `json:"offeredAs,omitempty"`
	// ResourceName is the name of the extended resource; "": niclane.dev/NAME.
	// Pods that ask for net.intel.com/adq run unchanged with it.
	ResourceName string `json:"resourceName,omitempty"`
	// Queues of each queue set.
	Queues int `json:"queues"`
	// Sets is how many queue sets an exclusive class has: how many pods;
	// 0: one. A set has the class's queues, guarantee, ceiling and pollers.
	Sets int `json:"sets,omitempty"`
	// Members is how many pods a shared class takes; 0: DefaultMembers.
	Members int `json:"members,omitempty"`
	// Aligned: the pods' applications place their threads by NAPI ID.
	// Mechanisms that lose the NAPI ID are then refused.
	Aligned bool `json:"aligned,omitempty"`

	Tuning `json:",inline"`
}

// DefaultMembers is how many pods a shared class takes unless it says: as many as
// a node runs if nobody says more (kubelet's maxPods).
const DefaultMembers = 110

// Tuning is what every lane has, the default lane too: lanes.yaml's section
// GLOBALS AND LANES. Zero fields are not given.
type Tuning struct {
	// CPUs is "auto", or a list of processors and ranges ("2-3,8").
	CPUs string `json:"cpus,omitempty"`
	// NUMA is local, remote, all, or the number of a node.
	NUMA string `json:"numa,omitempty"`
	// Guarantee and Ceiling are shares ("20%") or rates ("2gbit") on transmit.
	Guarantee string `json:"guarantee,omitempty"`
	Ceiling   string `json:"ceiling,omitempty"`
	// Rank is 1 (first) to 7 (last).
	Rank int `json:"rank,omitempty"`
	// Poller is auto, interrupt, thread, busy or application.
	Poller string `json:"poller,omitempty"`
	// Pollers is the number of polling threads of each queue set.
	Pollers int `json:"pollers,omitempty"`
	// PollerTimeout is how long a busy poller goes on without packets ("10ms").
	PollerTimeout string `json:"pollerTimeout,omitempty"`
	// PollerPriority is SCHED_FIFO's, 1 to 99; PollerNice SCHED_OTHER's.
	PollerPriority int  `json:"pollerPriority,omitempty"`
	PollerNice     *int `json:"pollerNice,omitempty"`
	// Interrupt moderation, microseconds.
	RxAdapt *bool `json:"rxadapt,omitempty"`
	TxAdapt *bool `json:"txadapt,omitempty"`
	RxUsecs *int  `json:"rxusecs,omitempty"`
	TxUsecs *int  `json:"txusecs,omitempty"`
}

// A LanePolicyStatus is how the nodes that follow the policy are. Each node's
// agent applies its own entry (server-side apply), and no other.
type LanePolicyStatus struct {
	Nodes []NodeStatus `json:"nodes,omitempty"`
}

// A NodeStatus is how one node is.
type NodeStatus struct {
	// Name of the node.
	Name string `json:"name"`
	// ObservedGeneration is the policy's generation that the agent has seen.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Devices that the lanes are on.
	Devices []string `json:"devices,omitempty"`
	// Classes as they are on the node.
	Classes []ClassStatus `json:"classes,omitempty"`
	// Conditions: Applied, Healthy and Steered.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Types of conditions.
const (
	// Applied: the node's card is as the policy says.
	Applied = "Applied"
	// Healthy: it is still, by the kernel's own account.
	Healthy = "Healthy"
	// Steered: no packets of the pods in lanes are known that the card sees
	// under another address, because the node translates them.
	Steered = "Steered"
)

// A ClassStatus is what a class is on one node.
type ClassStatus struct {
	Name string `json:"name"`
	// Total units (queue sets of an exclusive class, pods of a shared one),
	// those that pods hold, and those that cannot be given now.
	Total     int `json:"total"`
	InUse     int `json:"inUse"`
	Unhealthy int `json:"unhealthy,omitempty"`
	// Mechanism is how the queue sets are made: rss-context, ...
	Mechanism string `json:"mechanism,omitempty"`
	// Held says why the class is not as the policy has it: pods are in it.
	Held string `json:"held,omitempty"`
}

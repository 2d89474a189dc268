// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A LanePolicy says which classes of lanes the selected nodes have. It is cluster-wide. A
// node follows one policy: the one with the highest priority among those that select it. If
// several have that priority, it follows the oldest, and the others say so (Conflicted).
type LanePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   LanePolicySpec   `json:"spec"`
	Status LanePolicyStatus `json:"status,omitempty"`
}

// A LanePolicySpec is the wanted state.
type LanePolicySpec struct {
	// NodeSelector selects nodes by their labels. Nil or empty selects all nodes.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Priority decides between policies that select the same node: the highest wins.
	Priority int32 `json:"priority,omitempty"`
	// Rollout says how a change of the policy reaches the nodes.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Uplink describes the device that the lanes are on, and the default lane.
	Uplink Uplink `json:"uplink,omitempty"`
	// Classes are the classes of lanes, in the order of their queues. An empty list removes all lanes.
	Classes []Class `json:"classes,omitempty"`
}

// A Rollout says how a change of a policy reaches its nodes. It stops at the first node that
// refuses the change.
type Rollout struct {
	// MaxUnavailable is the number or share ("25%", rounded up) of nodes that may be busy with
	// a change at one time; nil: DefaultMaxUnavailable.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Paused stops the rollout: no further node gets the change.
	Paused bool `json:"paused,omitempty"`
}

// DefaultMaxUnavailable is the default of Rollout.MaxUnavailable.
const DefaultMaxUnavailable = "25%"

// An Uplink has the device of the lanes, and the default lane. Its values are those of the section
// globals in lanes.yaml.
type Uplink struct {
	// Dev is the name of the network device with the lanes. Bond is the name of a bond instead: the
	// lanes span its slaves. If neither is given, the agent takes the device that has the node's
	// InternalIP.
	Dev  string `json:"dev,omitempty"`
	Bond string `json:"bond,omitempty"`
	// VLANs limit the lanes to these VLAN IDs.
	VLANs []int `json:"vlans,omitempty"`
	// LinkRate ("10G") is the link's rate, never a share. It is needed for devices that do not
	// report it.
	LinkRate Rate `json:"linkRate,omitempty"`
	// Unshaped are networks of other hosts (CIDRs), at most 8. On transmit, packets to them leave as
	// the default lane's, whatever lane they belong to.
	Unshaped []string `json:"unshaped,omitempty"`
	// Queues is the number of queues of the default lane. 0 means all queues that the classes leave.
	Queues int `json:"queues,omitempty"`
	// BusyPoll and BusyRead are sysctls of the whole node.
	BusyPoll Duration `json:"busyPoll,omitempty"`
	BusyRead Duration `json:"busyRead,omitempty"`
	// ARPFilter makes each device answer ARP for its own addresses only.
	ARPFilter *bool `json:"arpFilter,omitempty"`
	// RxRing and TxRing are the numbers of descriptors of each receive and transmit ring.
	RxRing *int `json:"rxRing,omitempty"`
	TxRing *int `json:"txRing,omitempty"`
	// Force maps the name of a part of a lane (for example classifier) to the mechanism that must make
	// it.
	Force map[string]string `json:"force,omitempty"`

	Tuning `json:",inline"`
}

// A Rate is a share of the link's rate ("20%"), or a quantity of bit/s ("2G", "500M"), as in the
// annotation kubernetes.io/egress-bandwidth. "" means that it is not given.
type Rate string

// A Duration is a time with its unit us, ms or s ("50us"), from 0us to 1s. "" means that it is not
// given. (metav1.Duration writes µs.)
type Duration string

// Modes of a class.
const (
	// Exclusive means that each pod has its own queue set.
	Exclusive = "Exclusive"
	// Shared means that all pods of the class share one queue set fairly.
	Shared = "Shared"
)

// Ways to offer a class to the scheduler. A class is offered in one way only, because
// kubelet's device manager and DRA do not know of each other.
const (
	// OfferedAsClaim means that pods get devices of the DRA driver niclane.dev: by claims and, from
	// Kubernetes 1.36, by the extended resource niclane.dev/CLASS too.
	OfferedAsClaim = "Claim"
	// OfferedAsResource means that pods ask for the extended resource niclane.dev/CLASS of a device
	// plugin.
	OfferedAsResource = "Resource"
)

// Pollers of a lane.
const (
	PollerAuto        = "Auto"
	PollerInterrupt   = "Interrupt"
	PollerThread      = "Thread"
	PollerBusy        = "Busy"
	PollerApplication = "Application"
)

// A Class is a kind of lane that pods can ask for.
type Class struct {
	// Name has 1 to 28 of the characters a-z, 0-9 and -. It begins and ends with a letter or
	// a digit.
	Name string `json:"name"`
	// Mode is Exclusive or Shared. "" means Exclusive.
	Mode string `json:"mode,omitempty"`
	// OfferedAs is OfferedAsClaim or OfferedAsResource. "" means OfferedAsClaim.
	OfferedAs string `json:"offeredAs,omitempty"`
	// ResourceName is the name of the extended resource of a class that is OfferedAsResource. ""
	// means niclane.dev/NAME. With the name net.intel.com/adq, pods written for Intel's plugins run
	// unchanged.
	ResourceName string `json:"resourceName,omitempty"`
	// Queues is the number of queues of each queue set.
	Queues int `json:"queues"`
	// Capacity is the number of pods that the class has room for on a node: the queue sets of an
	// exclusive class, the places of a shared one. Each queue set has the class's queues, guarantee,
	// ceiling and pollers. 0 means one queue set, or DefaultPlaces.
	Capacity int `json:"capacity,omitempty"`
	// DSCP is the DSCP with which the lanes' packets leave: a name in capitals (EF, CS5, AF41), or 0 to
	// 63. nil leaves the DSCP to the applications.
	DSCP *intstr.IntOrString `json:"dscp,omitempty"`
	// Aligned says that the pods' applications place their threads by NAPI ID. niclane then refuses
	// mechanisms that lose the NAPI ID.
	Aligned bool `json:"aligned,omitempty"`
	// NUMAHint gives kubelet's topology manager the NUMA node of the device. nil means true. Only a
	// class that is OfferedAsResource can have false: a claim gives no hint.
	NUMAHint *bool `json:"numaHint,omitempty"`
	// HostNetwork gives lanes of the class also to pods of the host's network. Such a pod
	// names ports of the node's address, so it can take packets of any service of the node.
	HostNetwork bool `json:"hostNetwork,omitempty"`

	Tuning `json:",inline"`
}

// DefaultPlaces is the default of Capacity of a shared class. It equals the default of kubelet's
// maxPods.
const DefaultPlaces = 110

// Tuning has the values that every lane can have, also the default lane. Section GLOBALS AND LANES
// of lanes.yaml(5) describes them. A zero value means that the value is not given.
type Tuning struct {
	// CPUs is "Auto", or a list of CPU numbers and ranges ("2-3,8").
	CPUs string `json:"cpus,omitempty"`
	// NUMA is Local, Remote, All, or the number of a NUMA node.
	NUMA *intstr.IntOrString `json:"numa,omitempty"`
	// Guarantee and Ceiling are the least and the most that the lane may send.
	Guarantee Rate `json:"guarantee,omitempty"`
	Ceiling   Rate `json:"ceiling,omitempty"`
	// Rank is 1 (sends first) to 7 (sends last).
	Rank int `json:"rank,omitempty"`
	// Poller is PollerAuto ("" means the same), PollerInterrupt, PollerThread, PollerBusy or
	// PollerApplication.
	Poller string `json:"poller,omitempty"`
	// Pollers is the number of polling threads of each queue set.
	Pollers int `json:"pollers,omitempty"`
	// PollerTimeout is how long a busy poller continues to poll without packets. It is above 0.
	PollerTimeout Duration `json:"pollerTimeout,omitempty"`
	// PollerPriority is the SCHED_FIFO priority of the pollers' threads, 1 to 99. PollerNice is their
	// nice value under SCHED_OTHER.
	PollerPriority int  `json:"pollerPriority,omitempty"`
	PollerNice     *int `json:"pollerNice,omitempty"`
	// AdaptiveRx, AdaptiveTx, CoalesceRx and CoalesceTx set interrupt moderation. They are adaptive-rx,
	// adaptive-tx, rx-usecs and tx-usecs of ethtool -C.
	AdaptiveRx *bool    `json:"adaptiveRx,omitempty"`
	AdaptiveTx *bool    `json:"adaptiveTx,omitempty"`
	CoalesceRx Duration `json:"coalesceRx,omitempty"`
	CoalesceTx Duration `json:"coalesceTx,omitempty"`
}

// A LanePolicyStatus is the state of the nodes that follow the policy, in numbers.
// niclane-controller writes it.
type LanePolicyStatus struct {
	// ObservedGeneration is the policy's generation that the other values are about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes is the number of nodes that follow the policy. Updated counts those that were
	// given this generation, Applied those whose agents have applied it. Failed nodes have
	// refused it, or do not hold their lanes, or kubelet refuses to offer them. Silent ones have no agent that answers.
	Nodes   int `json:"nodeCount"`
	Updated int `json:"updatedNodes"`
	Applied int `json:"appliedNodes"`
	Failed  int `json:"failedNodes"`
	Silent  int `json:"silentNodes"`
	// Conditions: Accepted and Ready.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Types of a LanePolicy's conditions, and their reasons.
const (
	// Accepted: the policy can be read, no other policy of the same priority goes first, and no older
	// policy has a class of the same name that differs (ClassConflicted). With ClaimsOnly and
	// ClaimsOff it is true, but pods do not get all classes in every way.
	Accepted              = "Accepted"
	ReasonAccepted        = "Accepted"
	ReasonClaimsOnly      = "ClaimsOnly"
	ReasonClaimsOff       = "ClaimsOff"
	ReasonInvalid         = "Invalid"
	ReasonConflicted      = "Conflicted"
	ReasonClassConflicted = "ClassConflicted"
	// Ready: all nodes that follow the policy have applied this generation and hold their
	// lanes.
	Ready              = "Ready"
	ReasonNodesReady   = "NodesReady"
	ReasonNoNodes      = "NoNodes"
	ReasonProgressing  = "Progressing"
	ReasonPaused       = "Paused"
	ReasonNodesFailed  = "NodesFailed"
	ReasonAgentsSilent = "AgentsSilent"
	ReasonUninstalled  = "Uninstalled" // niclane was removed from the cluster
)

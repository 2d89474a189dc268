// SPDX-License-Identifier: Apache-2.0

// Package events lists the events that niclane sends to the API server. docs/kubernetes-events.md
// explains each one to users.
package events

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// Reasons of events that are not reasons of conditions.
const (
	LaneFailed       = "LaneFailed"
	LaneLate         = "LaneLate"
	LaneBypassed     = "LaneBypassed"
	LaneRemoved      = "LaneRemoved"
	ServiceNotInLane = "ServiceNotInLane"
	NotChained       = "NotChained"
	NRINotConnected  = "NRINotConnected"
	StateRebuilt     = "StateRebuilt"
)

// A Kind is a kind of event.
type Kind struct {
	Reason string
	// Type is Normal for what is as wanted, and Warning for what needs a person.
	Type string
	// Object is the kind of the object that the event is about.
	Object string
}

// All returns all kinds of events, by object and reason.
func All() []Kind {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	return []Kind{
		{v1alpha1.ReasonAccepted, normal, v1alpha1.Kind},
		{v1alpha1.ReasonAgentsSilent, warning, v1alpha1.Kind},
		{v1alpha1.ReasonClaimsOff, warning, v1alpha1.Kind},
		{v1alpha1.ReasonClaimsOnly, normal, v1alpha1.Kind},
		{v1alpha1.ReasonClassConflicted, warning, v1alpha1.Kind},
		{v1alpha1.ReasonConflicted, warning, v1alpha1.Kind},
		{v1alpha1.ReasonInvalid, warning, v1alpha1.Kind},
		{v1alpha1.ReasonNoNodes, normal, v1alpha1.Kind},
		{v1alpha1.ReasonNodesFailed, warning, v1alpha1.Kind},
		{v1alpha1.ReasonNodesReady, normal, v1alpha1.Kind},
		{v1alpha1.ReasonPaused, normal, v1alpha1.Kind},
		{v1alpha1.ReasonProgressing, normal, v1alpha1.Kind},

		{v1alpha1.ReasonAddressesSeen, normal, "Node"},
		{v1alpha1.ReasonAddressesTranslated, warning, "Node"},
		{v1alpha1.ReasonAsThePolicySays, normal, "Node"},
		{v1alpha1.ReasonKubeletHasThem, normal, "Node"},
		{v1alpha1.ReasonKubeletRefused, warning, "Node"},
		{v1alpha1.ReasonLanesDoNotHold, warning, "Node"},
		{v1alpha1.ReasonLanesHold, normal, "Node"},
		{NRINotConnected, warning, "Node"},
		{v1alpha1.ReasonNodeIsClean, normal, "Node"},
		{NotChained, warning, "Node"},
		{v1alpha1.ReasonRefused, warning, "Node"},
		{v1alpha1.ReasonRemoveFailed, warning, "Node"},
		{v1alpha1.ReasonRemoving, normal, "Node"},
		{StateRebuilt, normal, "Node"},
		{v1alpha1.ReasonWaitsForPods, normal, "Node"},

		{LaneBypassed, warning, "Pod"},
		{LaneFailed, warning, "Pod"},
		{LaneLate, normal, "Pod"},
		{LaneRemoved, warning, "Pod"},
		{ServiceNotInLane, warning, "Pod"},
	}
}

// TypeOf returns the type of an event: Warning for a reason that All does not have.
func TypeOf(reason string) string {
	all := All()
	if i := slices.IndexFunc(all, func(k Kind) bool { return k.Reason == reason }); i >= 0 {
		return all[i].Type
	}
	return corev1.EventTypeWarning
}

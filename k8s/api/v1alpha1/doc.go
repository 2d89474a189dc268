// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the types of niclane's custom resources, group niclane.dev. A
// LanePolicy says which classes of lanes the nodes of a cluster have. A LaneNode has what one
// node follows of it, and the state of the node's lanes. The types are only data: package policy
// defines their meaning on a node, and writes it as lanes.yaml(5). Validity is checked twice: at
// once by the CRD's rules (dist/chart/niclane/crds), and on the node by the reader of lanes.yaml.
package v1alpha1

import "time"

// Group and version of the resources, their kinds, and their names in URLs.
const (
	Group        = "niclane.dev"
	Version      = "v1alpha1"
	Kind         = "LanePolicy"
	Resource     = "lanepolicies"
	NodeKind     = "LaneNode"
	NodeResource = "lanenodes"
)

// Renewal is the longest time between two writes of a LaneNode's status by its agent. An agent
// whose status is older than Silence does not answer.
const (
	Renewal = 5 * time.Minute
	Silence = 3 * Renewal
)

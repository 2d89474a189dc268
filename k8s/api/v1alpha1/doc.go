// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the types of niclane's custom resource LanePolicy, group
// niclane.dev: which classes of lanes the nodes of a cluster have. Its words are
// those of lanes.yaml(5), written in camel case where that has a hyphen. The
// types are data; what a policy means on a node is package policy's, and what is
// valid is said twice: by the rules of the CRD (dist/chart/niclane/crds) at once, and
// by lanes.yaml's own reader on the node.
package v1alpha1

// Group, version and kind of the resource, and its name in URLs.
const (
	Group    = "niclane.dev"
	Version  = "v1alpha1"
	Kind     = "LanePolicy"
	Resource = "lanepolicies"
)

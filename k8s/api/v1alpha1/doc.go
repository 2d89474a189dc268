// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the types of niclane's custom resource LanePolicy, group niclane.dev.
// A LanePolicy says which classes of lanes the nodes of a cluster have. Field names are those
// of lanes.yaml(5), in camel case. The types are only data: package policy defines their
// meaning on a node. Validity is checked twice: at once by the CRD's rules
// (dist/chart/niclane/crds), and on the node by the reader of lanes.yaml.
package v1alpha1

// Group, version and kind of the resource, and its name in URLs.
const (
	Group    = "niclane.dev"
	Version  = "v1alpha1"
	Kind     = "LanePolicy"
	Resource = "lanepolicies"
)

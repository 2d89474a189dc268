// SPDX-License-Identifier: Apache-2.0

// Package manifests has the Kubernetes objects that niclane brings with it.
package manifests

import _ "embed"

// CRD is the CustomResourceDefinition of LanePolicy, in YAML.
//
//go:embed crd.yaml
var CRD []byte

// SPDX-License-Identifier: Apache-2.0

// Package experiments has the experiment that the niclane command carries with
// it; the other files of this directory it reads where they are.
package experiments

import _ "embed"

// FirstLane is what "niclane bench first-lane" measures.
//
//go:embed first-lane.yaml
var FirstLane string

// SPDX-License-Identifier: Apache-2.0

package emucard

import "github.com/niclane/niclane/internal/traffic/flow"

// A pattern is struct pattern of flow.h. Used is raised before a rule is added and lowered
// after one is removed, so that a killed process can leave it too high, never too low.
type pattern struct {
	Mask flow.Flow
	Used uint32
	_    uint32
}

// SPDX-License-Identifier: Apache-2.0

package emucard

import "github.com/niclane/niclane/internal/traffic/flow"

// A pattern is struct pattern. Used is raised before a rule is added and
// lowered after one was removed: a kill can leave it too high, never too low.
type pattern struct {
	Mask flow.Flow
	Used uint32
	_    uint32
}

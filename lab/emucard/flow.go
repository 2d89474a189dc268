// SPDX-License-Identifier: Apache-2.0

package emucard

import "github.com/niclane/niclane/internal/traffic/flow"

// A pattern corresponds to struct pattern in c/card.c. Used counts the pattern's rules. It is
// raised before a rule is added and lowered after a rule is removed. So a killed process can leave
// it too high, but never too low.
type pattern struct {
	Mask flow.Flow
	Used uint32
	_    uint32
}

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"

	"github.com/niclane/niclane/bench/experiment"
)

// order of the variants in round i: A B C, C B A, B C A, A C B, ... Every second
// round runs the one before it backwards, so that a slow drift of the host
// favours none, and each pair of rounds begins with another variant, so that
// what one leaves behind meets all others.
func order(variants []experiment.Variant, i int) []experiment.Variant {
	shift := i / 2 % len(variants)
	out := slices.Concat(variants[shift:], variants[:shift])
	if i%2 == 1 {
		slices.Reverse(out)
	}
	return out
}

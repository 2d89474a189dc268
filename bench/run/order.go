// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"

	"github.com/niclane/niclane/bench/experiment"
)

// order returns the variants of round i: A B C, C B A, B C A, A C B, ... Every second round is
// the reverse of the one before, so that a slow drift of the host favours no variant. Each pair
// of rounds begins with another variant, so that the after-effects of one variant are spread
// over all others.
func order(variants []experiment.Variant, i int) []experiment.Variant {
	shift := i / 2 % len(variants)
	out := slices.Concat(variants[shift:], variants[:shift])
	if i%2 == 1 {
		slices.Reverse(out)
	}
	return out
}

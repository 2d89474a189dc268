// SPDX-License-Identifier: Apache-2.0

package firstlane

import "github.com/niclane/niclane/bench/report"

// order of the variants within repeat i. Each variant stands in each place
// equally often over three repeats, and every second round runs backwards
// (A B C, B C A, C A B, C B A, ...), so that neither a slow drift of the host
// nor what one variant leaves behind for the next favours any of them.
func order(i int) []string {
	base := []string{report.Idle, report.NoLane, report.Lane}
	shift := i % 3
	out := append(append([]string{}, base[shift:]...), base[:shift]...)
	if i/3%2 == 1 {
		out[0], out[2] = out[2], out[0]
	}
	return out
}

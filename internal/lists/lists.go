// SPDX-License-Identifier: Apache-2.0

// Package lists compares long lists of which little changes.
package lists

// Middle returns of two lists what is left of each between what both begin and end with,
// and where it begins in both. Nearly all of lists in which one item comes or goes is the
// same, and is passed over without being looked up anywhere.
func Middle[T comparable](a, b []T) (from int, inA, inB []T) {
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	endA, endB := len(a), len(b)
	for endA > from && endB > from && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
	}
	return from, a[from:endA], b[from:endB]
}

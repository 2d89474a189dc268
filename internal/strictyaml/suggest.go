// SPDX-License-Identifier: Apache-2.0

package strictyaml

import "strings"

// Suggest returns the end of a message about an unknown word: the nearest known word, or all of
// them if none is near.
func Suggest(word string, known []string) string {
	best, distance := "", 1+max(1, len(word)/3)
	if len(word) <= 40 {
		for _, k := range known {
			d := edits(word, k)
			if len(k) >= 3 && strings.HasPrefix(word, k) || len(word) >= 3 && strings.HasPrefix(k, word) {
				d = 1 // an abbreviation or a longer form: device, poll
			}
			if d < distance {
				best, distance = k, d
			}
		}
	}
	if best != "" {
		return ", did you mean " + best + "?"
	}
	return ", want one of " + strings.Join(known, " ")
}

// edits returns the number of insertions, deletions, replacements and swaps of neighbours that
// turn a into b (optimal string alignment).
func edits(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"slices"
	"testing"
)

func TestResized(t *testing.T) {
	for _, c := range []struct {
		queues []int
		size   int
		want   []int
	}{
		{[]int{2, 3}, 2, []int{2, 3}},
		{[]int{2, 3}, 4, []int{2, 3, 2, 3}},
		{[]int{2, 3, 2, 3}, 2, []int{2, 3}},
		{[]int{1, 2, 3}, 4, []int{1, 2, 3, 1}},
		{nil, 4, nil}, // requests the driver's default
		{[]int{2, 3}, 0, []int{2, 3}},
	} {
		if got := resized(c.queues, c.size); !slices.Equal(got, c.want) {
			t.Errorf("%v for %d entries: %v, want %v", c.queues, c.size, got, c.want)
		}
	}
}

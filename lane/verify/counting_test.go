// SPDX-License-Identifier: Apache-2.0

package verify_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/verify"
)

func TestCountings(t *testing.T) {
	for name, want := range map[string][]verify.Counting{
		// HTB, with XPS by receive queue.
		"two_lanes_ipv6": {
			{Lane: "default", ByQueue: true}, {Lane: "redis", Row: 0x10, ByQueue: true},
			{Lane: "web", Row: 0x11, ByQueue: true},
		},
		// The classifier chooses the queues. No lane has a guarantee, ceiling or rank.
		"plain_two_lanes": {
			{Lane: "default", ByQueue: true}, {Lane: "memcached", Queues: []int{5}, ByQueue: true},
			{Lane: "dns", Queues: []int{6, 7}, ByQueue: true},
		},
		// The kernel chooses among the queues of the lane's class.
		"mqprio": {{Lane: "default"}, {Lane: "backup", Row: 8}, {Lane: "web", Row: 9}},
		// The control group's sockets have the class. There is no classifier that reads packets.
		"sockops": nil,
	} {
		a, _ := emulated(t, name)
		got := verify.Countings(a, a.Lanes[0].Device)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := verify.Countings(a, "other0"); got != nil {
			t.Errorf("%s, another device: %v", name, got)
		}
	}
}

func TestCountedAs(t *testing.T) {
	cs := []verify.Counting{{Lane: "default"}, {Lane: "web", Queues: []int{5, 6}}, {Lane: "redis", Row: 16}}
	for at, want := range map[[2]int]string{
		{0, 5}: "web", {0, 6}: "web", {0, 4}: "default", {0, -1}: "default", {16, 5}: "redis", {16, -1}: "redis",
		{17, 5}: "",
	} {
		if got := verify.CountedAs(cs, at[0], at[1]); got != want {
			t.Errorf("row %d, queue %d: %q, want %q", at[0], at[1], got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package page

import (
	"testing"

	"github.com/niclane/niclane/bench/part/cache"
	"github.com/niclane/niclane/bench/result"
)

func TestInstancesText(t *testing.T) {
	r := &result.Result{}
	if got := instancesText(r); got != "" {
		t.Errorf("of one: %q", got)
	}
	r.Server.Instances = []result.Instance{{Node: 0, CPUs: []int{0, 1}, Mems: []int{0}},
		{Node: 2, CPUs: []int{4}, Mems: []int{1}}}
	of := func(n int64) *cache.Counters { return &cache.Counters{Requests: n} }
	r.Windows = []result.Window{
		{Instances: []result.InstanceWindow{{Node: 0, Cache: of(10)}, {Node: 2, Cache: of(20)}}},
		{Instances: []result.InstanceWindow{{Node: 0, Cache: of(20)}, {Node: 2, Cache: of(70)}}},
	}
	const want = "node 0: processors 0-1, memory of node 0, 25 % of the requests; node 2: processors 4, memory of " +
		"node 1, 75 % of the requests"
	if got := instancesText(r); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

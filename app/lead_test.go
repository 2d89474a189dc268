// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestArrival: for any number of listeners, each connection goes to the instance on the node where
// it arrives, or all go to one instance.
func TestArrival(t *testing.T) {
	nodes := [][]int{{0, 1}, {4, 5}}
	listeners := []Listening{{Home: "0-1"}, {Home: "4-5"}, {CPU: 0}, {Home: "0-1"}}
	for _, tt := range []struct {
		name string
		only int
		want map[int][]int
	}{
		{"each to its own", -1, map[int][]int{0: {0, 3}, 1: {0, 3}, 4: {1}, 5: {1}}},
		{"all to the second, from other processors too", 1, map[int][]int{0: {1}, 1: {1}, 4: {1}, 5: {1}, 9: {1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &arrival{Leading: Leading{Nodes: nodes, Only: tt.only, Others: []int{9}}, devices: []uint32{3}}
			s, placed := a.tables(listeners)
			if diff := cmp.Diff(tt.want, s.cpus); diff != "" || placed != 3 {
				t.Errorf("%d placed, (-want +got)\n%s", placed, diff)
			}
			tables := s.with([]uint32{10, 11, 12, 13})
			if got := tables.CPUs[5]; !cmp.Equal(got, []uint32{11}) || len(tables.Queues) != 0 ||
				!cmp.Equal(tables.Devices, []uint32{3}) {
				t.Errorf("tables %+v", tables)
			}
		})
	}
	a := &arrival{Leading: Leading{Nodes: nodes, Only: -1}}
	if got := a.lacking(listeners[2:]); !cmp.Equal(got, []int{1}) {
		t.Errorf("lacking %v, want the second", got)
	}
}

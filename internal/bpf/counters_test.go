// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/niclane/niclane/internal/vethtest"
)

func TestCounters(t *testing.T) {
	for _, frags := range []bool{false, true} {
		t.Run(fmt.Sprintf("frags=%v", frags), func(t *testing.T) { testCounters(t, frags) })
	}
}

func testCounters(t *testing.T, frags bool) {
	p, m := loadVariant(t, variant{IngressProgram, frags}, true)
	addLanes(t, m)
	fillXDP(t, m, 1, func(int) uint32 { return 0 })
	m.dev = vethtest.Dev
	vethtest.Run(t, 70, func(t *testing.T) {
		// A lane's frame and one of none, in queues 0, 3 and 66.
		payload := ports(4000, 11211)
		if frags { // more than a page
			payload = append(payload, make([]byte, 9000)...)
		}
		lane := frame(0x800, ipv4(6, four2, four, 0, 0, payload))
		none := frame(0x806, make([]byte, 46))
		link, err := net.InterfaceByName(vethtest.Dev)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []int{0, 3, 66, 3} {
			runXDP(t, p, lane, link.Index, q)
			runXDP(t, p, none, link.Index, q)
		}
		got, err := m.counted()
		if err != nil {
			t.Fatal(err)
		}
		var want []LaneCounter
		for l, size := range map[int]int{0: len(none), 10: len(lane)} {
			for q, n := range map[int]int{0: 1, 3: 2, 63: 1} {
				want = append(want, LaneCounter{Dev: "v0", Lane: l, Queue: q, Packets: uint64(n), Bytes: uint64(n * size)})
			}
		}
		slices.SortFunc(want, func(a, b LaneCounter) int {
			return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Queue, b.Queue))
		})
		if !slices.Equal(want, got) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

func TestCounters(t *testing.T) {
	for _, frags := range []bool{false, true} {
		t.Run(fmt.Sprintf("frags=%v", frags), func(t *testing.T) { testCounters(t, frags) })
	}
}

func testCounters(t *testing.T, frags bool) {
	p, m := loadVariant(t, variant{program: IngressProgram, frags: frags}, true)
	addLanes(t, m)
	fillXDP(t, m, 1, func(int) uint32 { return 0 })
	m.dev = vethtest.Dev
	vethtest.Run(t, 70, func(t *testing.T) {
		// A frame of a lane and a frame of no lane, in queues 0, 3 and 66.
		payload := ports(4000, 11211)
		if frags { // larger than a page
			payload = append(payload, make([]byte, 9000)...)
		}
		lane := frame(0x800, ipv4(6, four2, four, 0, 0, payload))
		none := frame(0x806, make([]byte, 46))
		link := vethtest.Interface(t, vethtest.Dev)
		for _, q := range []int{0, 3, 66, 3} {
			runXDP(t, p, lane, link.Index, q)
			runXDP(t, p, none, link.Index, q)
		}
		got, err := m.counted()
		must.Do(t, err)
		var want []LaneCounter
		for l, size := range map[int]int{0: len(none), 10: len(lane)} {
			for q, n := range map[int]int{0: 1, 3: 2, 63: 1} {
				want = append(want, LaneCounter{Dev: "v0", Lane: l, Queue: q, Packets: uint64(n),
					Bytes: uint64(n * size)})
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

func TestSentCounters(t *testing.T) {
	objs, m := load(t)
	for port, to := range map[uint16]egressTarget{
		1: {Class: 0x1_0010},                      // leaves by any queue
		2: {Class: 0x1_0011, Queue: 5, Queues: 1}, // leaves by one
		3: {Queue: 7, Queues: 1},                  // no class: row 0; its queue is known
		4: {Class: 9, Queue: 70, Queues: 1},       // a queue beyond those counted separately
		5: {Class: 0x1_0000 + maxRows, Queues: 1}, // has no row
	} {
		f, mask, err := flow.Encode(device.Match{Family: 4, Protocol: "tcp", LocalPort: port})
		if err == nil {
			err = m.add(f, mask, to)
		}
		must.Do(t, err)
	}
	var size uint64
	for port, times := range map[uint16]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6} {
		f := frame(0x800, ipv4(6, four, four2, 0, 0, ports(port, 4000)))
		size = uint64(len(f))
		for range times {
			if _, err := objs.NiclaneEgress.Run(&ebpf.RunOptions{Data: f}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := m.counted([]int{0, 9, 0x10, 0x11, maxRows, -1})
	must.Do(t, err)
	var want []SentCounter
	for _, c := range [][3]int{{0, 7, 3}, {0, UnknownQueue, 6}, {9, UnknownQueue, 4}, {0x10, UnknownQueue, 1},
		{0x11, 5, 2}} {
		want = append(want, SentCounter{Row: c[0], Queue: c[1], Packets: uint64(c[2]), Bytes: uint64(c[2]) * size})
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// TestLanePriorities: a packet of no lane may have a lane's priority under mqprio. The
// classifier clears such a priority, and keeps any other priority.
func TestLanePriorities(t *testing.T) {
	objs, m := load(t)
	flow, mask, err := flow.Encode(device.Match{Family: 4, Protocol: "udp", LocalPort: 53})
	must.Do(t, err)
	must.Do(t, m.add(flow, mask, egressTarget{Class: 9}))
	taken := func(lanes ...int) {
		t.Helper()
		rest, err := encodeRest(device.FilterDefault{Lanes: lanes})
		must.Do(t, err)
		must.Do(t, objs.NlDefault.Put(uint32(0), rest))
	}
	taken(8, 9)
	from := func(port uint16) []byte {
		return frame(0x0800, ipv4(17, "10.0.0.1", "10.0.0.2", 0, 0, ports(port, 4000)))
	}
	arp := frame(0x0806, make([]byte, 28))
	for _, x := range []struct {
		what     string
		packet   []byte
		was, now uint32
	}{
		{"lane", from(53), 0, 9}, {"lane", from(53), 6, 9}, {"lane", from(53), 8, 9}, {"lane", from(53), 0x10010, 9},
		{"other", from(54), 0, 0}, {"other", from(54), 6, 6}, {"other", from(54), 8, 0}, {"other", from(54), 9, 1},
		{"other", from(54), 10, 10}, {"other", from(54), 15, 15}, {"other", from(54), 24, 16},
		{"other", from(54), 0x10010, 0x10010}, {"other", from(54), 0x10019, 0x10011},
		{"ARP", arp, 8, 0}, {"ARP", arp, 7, 7},
	} {
		if got := classify(t, objs.NiclaneEgress, x.packet, x.was); got != x.now {
			t.Errorf("%s: priority %#x became %#x, want %#x", x.what, x.was, got, x.now)
		}
	}
	// The classifier first clears bit 8 of a lane's priority. With more than eight lanes, the
	// result may be another lane's priority.
	taken(6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	for was, now := range map[uint32]uint32{15: 0, 14: 0, 13: 5, 9: 1, 8: 0, 7: 0, 6: 0, 5: 5, 0: 0, 0x1000e: 0x10000} {
		if got := classify(t, objs.NiclaneEgress, from(54), was); got != now {
			t.Errorf("other, of ten lanes: priority %#x became %#x, want %#x", was, got, now)
		}
	}
}

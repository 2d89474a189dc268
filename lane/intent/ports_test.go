// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/intent"
)

func span(first, last int) (ports []uint16) {
	for p := first; p <= last; p++ {
		ports = append(ports, uint16(p))
	}
	return ports
}

func TestBlocks(t *testing.T) {
	got := intent.Blocks(span(49152, 65535))
	if diff := cmp.Diff([]intent.PortBlock{{49152, 4}, {53248, 4}, {57344, 4}, {61440, 4}}, got); diff != "" {
		t.Errorf("49152-65535 (-want +got):\n%s", diff)
	}
	got = intent.Blocks(slices.Concat(span(1, 2), span(16384, 32768)))
	want := []intent.PortBlock{{1, 16}, {2, 16}, {16384, 4}, {20480, 4}, {24576, 4}, {28672, 4}, {32768, 16}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("1-2, 16384-32768 (-want +got):\n%s", diff)
	}
	// In a list of up to FewPorts ports, each port is a block.
	if got := intent.Blocks(span(4096, 4096+intent.FewPorts-1)); len(got) != intent.FewPorts || got[0].Bits != 16 {
		t.Errorf("%d ports are %d blocks, the first %+v", intent.FewPorts, len(got), got[0])
	}
}

// FuzzBlocks checks that the blocks contain each port of the list once, and no other port.
func FuzzBlocks(f *testing.F) {
	f.Add(uint16(1), uint16(65535), uint16(1))
	f.Add(uint16(10000), uint16(60000), uint16(20000))
	f.Add(uint16(30000), uint16(32767), uint16(30001))
	f.Fuzz(func(t *testing.T, first, last, hole uint16) {
		if first == 0 || last < first {
			return
		}
		ports := slices.DeleteFunc(span(int(first), int(last)), func(p uint16) bool { return p == hole })
		var back []uint16
		blocks := intent.Blocks(ports)
		for _, b := range blocks {
			back = append(back, span(int(b.Port), int(b.Port)+1<<(16-b.Bits)-1)...)
		}
		if !slices.Equal(back, ports) {
			t.Fatalf("%d-%d without %d: blocks %v", first, last, hole, blocks)
		}
		if len(ports) > intent.FewPorts && len(blocks) > 180 {
			t.Fatalf("%d-%d without %d: %d blocks", first, last, hole, len(blocks))
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeStats(t *testing.T) {
	var names, values []byte
	for i, name := range []string{"rx_queue_0_drops", "rx_queue_1_drops", "a_name_that_fills_all_32_bytes__"} {
		names = append(names, make([]byte, stringLength)...)
		copy(names[i*stringLength:], name)
		values = binary.NativeEndian.AppendUint64(values, uint64(i+10))
	}
	want := map[string]uint64{"rx_queue_0_drops": 10, "rx_queue_1_drops": 11, "a_name_that_fills_all_32_bytes__": 12}
	if diff := cmp.Diff(want, decodeStats(names, values)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := decodeStats(names, values[:15]); len(got) != 1 {
		t.Errorf("one whole value gives %v", got)
	}
}

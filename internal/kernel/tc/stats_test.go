// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"testing"

	"github.com/mdlayher/netlink"

	"github.com/niclane/niclane/lane/device"
)

// TestDecodeStats uses the attributes in the layout of gnet_stats_copy_basic and
// gnet_stats_copy_queue in net/core/gen_stats.c.
func TestDecodeStats(t *testing.T) {
	basic := binary.NativeEndian.AppendUint64(nil, 5_000_000_000)
	basic = binary.NativeEndian.AppendUint32(basic, 77)
	basic = binary.NativeEndian.AppendUint32(basic, 0) // padding
	var queue []byte
	for _, v := range []uint32{3 /* qlen */, 4500 /* backlog */, 9 /* drops */, 1, 2} {
		queue = binary.NativeEndian.AppendUint32(queue, v)
	}
	encode := func(packets64 uint64) []byte {
		ae := netlink.NewAttributeEncoder()
		ae.Bytes(statsBasic, basic)
		ae.Bytes(statsQueue, queue)
		if packets64 != 0 {
			ae.Uint64(statsPackets, packets64)
		}
		b, err := ae.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for packets64, want := range map[uint64]uint64{0: 77, 1 << 33: 1 << 33} {
		got, err := decodeStats(encode(packets64))
		if w := (device.ClassCounter{Packets: want, Bytes: 5_000_000_000, Drops: 9, Backlog: 4500}); got != w ||
			err != nil {
			t.Errorf("got %+v, %v\nwant %+v", got, err, w)
		}
	}
}

func FuzzDecodeStats(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0, 1, 2, 3, 4})
	f.Add([]byte{24, 0, 3, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = decodeStats(b) })
}

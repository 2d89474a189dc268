// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"

	"github.com/niclane/niclane/lane/device"
)

// Attributes of TCA_STATS2 (linux/gen_stats.h).
const (
	statsBasic    = 1 // struct gnet_stats_basic: u64 bytes, u32 packets
	statsQueue    = 3 // struct gnet_stats_queue: u32 qlen, backlog, drops, requeues, overlimits
	statsPackets  = 8 // u64, if 32 bits are too few (Linux 5.5)
	sizeofBasic   = 12
	sizeofQueue   = 20
	offsetBacklog = 4
	offsetDrops   = 8
)

// ClassCounters returns the counters of a device's HTB classes in the kernel's order.
func (c *Client) ClassCounters(dev string) ([]device.ClassCounter, error) {
	reps, err := c.classes(dev)
	if err != nil {
		return nil, err
	}
	var out []device.ClassCounter
	for _, r := range reps {
		if r.kind != "htb" {
			continue
		}
		cc, err := decodeStats(r.stats)
		if err != nil {
			return nil, fmt.Errorf("%s: counters of class %s: %w", dev, FormatHandle(r.handle), err)
		}
		cc.ID = FormatHandle(r.handle)
		out = append(out, cc)
	}
	return out, nil
}

func decodeStats(b []byte) (device.ClassCounter, error) {
	var cc device.ClassCounter
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return cc, err
	}
	var wide uint64
	for ad.Next() {
		v := ad.Bytes()
		switch {
		case ad.Type() == statsBasic && len(v) >= sizeofBasic:
			cc.Bytes = binary.NativeEndian.Uint64(v)
			cc.Packets = uint64(binary.NativeEndian.Uint32(v[8:]))
		case ad.Type() == statsQueue && len(v) >= sizeofQueue:
			cc.Backlog = uint64(binary.NativeEndian.Uint32(v[offsetBacklog:]))
			cc.Drops = uint64(binary.NativeEndian.Uint32(v[offsetDrops:]))
		case ad.Type() == statsPackets && len(v) >= 8:
			wide = binary.NativeEndian.Uint64(v)
		}
	}
	if wide != 0 {
		cc.Packets = wide
	}
	return cc, ad.Err()
}

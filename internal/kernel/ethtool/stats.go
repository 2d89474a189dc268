// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Numbers of linux/ethtool.h.
const (
	cmdGetStrings = 0x1b // ETHTOOL_GSTRINGS
	cmdGetStats   = 0x1d // ETHTOOL_GSTATS
	stringsStats  = 1    // ETH_SS_STATS
	stringLength  = 32   // ETH_GSTRING_LEN
)

// Stats returns the driver's own counters by name, as `ethtool -S` shows them. It returns
// none if the driver has none.
func (c *Client) Stats(dev string) (map[string]uint64, error) {
	info, err := unix.IoctlGetEthtoolDrvinfo(c.fd, dev)
	if err != nil {
		return nil, fmt.Errorf("get driver of %s: %w", dev, err)
	}
	n := int(info.N_stats)
	if n == 0 {
		return nil, nil
	}
	names := make([]byte, 12+n*stringLength)
	binary.NativeEndian.PutUint32(names, cmdGetStrings)
	binary.NativeEndian.PutUint32(names[4:], stringsStats)
	binary.NativeEndian.PutUint32(names[8:], uint32(n))
	if err := c.ioctl(dev, names); err != nil {
		return nil, fmt.Errorf("get names of the counters of %s: %w", dev, err)
	}
	values := make([]byte, 8+n*8)
	binary.NativeEndian.PutUint32(values, cmdGetStats)
	binary.NativeEndian.PutUint32(values[4:], uint32(n))
	if err := c.ioctl(dev, values); err != nil {
		return nil, fmt.Errorf("get counters of %s: %w", dev, err)
	}
	return decodeStats(names[12:], values[8:]), nil
}

// decodeStats pairs names with values. It drops surplus names or values.
func decodeStats(names, values []byte) map[string]uint64 {
	out := map[string]uint64{}
	for len(names) >= stringLength && len(values) >= 8 {
		out[unix.ByteSliceToString(names[:stringLength])] = binary.NativeEndian.Uint64(values)
		names, values = names[stringLength:], values[8:]
	}
	return out
}

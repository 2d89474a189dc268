// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// A RawRule is any steering rule, niclane's or foreign, in the kernel's layout (struct
// ethtool_rxnfc).
type RawRule []byte

// Location is the rule's place in the card's table.
func (r RawRule) Location() int {
	return int(binary.NativeEndian.Uint32(r[rxnfcSpec+specLocation:]))
}

// RawRules reads all steering rules of a device.
func (c *Client) RawRules(dev string) ([]RawRule, error) {
	locations, _, err := c.locations(dev)
	if err != nil {
		return nil, fmt.Errorf("get rules of %s: %w", dev, err)
	}
	var out []RawRule
	for _, loc := range locations {
		buf, err := c.rule(dev, loc)
		if err != nil {
			return nil, fmt.Errorf("get rules of %s: rule %d: %w", dev, loc, err)
		}
		out = append(out, buf)
	}
	return out, nil
}

// RestoreRule inserts a rule, as RawRules returned it, at its old location. If a rule is there
// now, RestoreRule does nothing. If the driver chooses locations, it may choose another one.
func (c *Client) RestoreRule(dev string, r RawRule) error {
	if _, err := c.rule(dev, uint32(r.Location())); err == nil {
		return nil
	}
	_, size, err := c.locations(dev)
	if err != nil {
		return err
	}
	buf := append([]byte(nil), r...)
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_SRXCLSRLINS)
	if size.Anywhere {
		binary.NativeEndian.PutUint32(buf[rxnfcSpec+specLocation:], locAny)
	}
	return c.ioctl(dev, buf)
}

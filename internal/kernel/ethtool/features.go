// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A bit of a bitset in the kernel's verbose form.
type bit struct {
	name string
	on   bool
}

// decodeBitset reads ETHTOOL_A_BITSET in verbose form. Without a mask (NOMASK), the kernel
// lists only the set bits, without values.
func decodeBitset(ad *netlink.AttributeDecoder) ([]bit, error) {
	var bits []bit
	noMask := false
	for ad.Next() {
		switch ad.Type() {
		case unix.ETHTOOL_A_BITSET_NOMASK:
			noMask = true
		case unix.ETHTOOL_A_BITSET_BITS:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					if list.Type() != unix.ETHTOOL_A_BITSET_BITS_BIT {
						continue
					}
					list.Nested(func(nad *netlink.AttributeDecoder) error {
						var b bit
						for nad.Next() {
							switch nad.Type() {
							case unix.ETHTOOL_A_BITSET_BIT_NAME:
								b.name = nad.String()
							case unix.ETHTOOL_A_BITSET_BIT_VALUE:
								b.on = nad.Flag()
							}
						}
						bits = append(bits, b)
						return nad.Err()
					})
				}
				return list.Err()
			})
		}
	}
	if noMask {
		for i := range bits {
			bits[i].on = true
		}
	}
	return bits, ad.Err()
}

// Features returns the netdev features by name, as `ethtool -k` shows them. A feature is
// fixed if the device's hardware features lack it, or if the kernel never changes it.
func (c *Client) Features(dev string) (map[string]device.Setting, error) {
	return read(c, "features", unix.ETHTOOL_MSG_FEATURES_GET, dev, decodeFeatures)
}

func decodeFeatures(b []byte) (map[string]device.Setting, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, err
	}
	var hw, active, never []bit
	for ad.Next() {
		var dst *[]bit
		switch ad.Type() {
		case unix.ETHTOOL_A_FEATURES_HW:
			dst = &hw
		case unix.ETHTOOL_A_FEATURES_ACTIVE:
			dst = &active
		case unix.ETHTOOL_A_FEATURES_NOCHANGE:
			dst = &never
		default:
			continue
		}
		ad.Nested(func(nad *netlink.AttributeDecoder) (err error) {
			*dst, err = decodeBitset(nad)
			return err
		})
	}
	if err := ad.Err(); err != nil {
		return nil, err
	}
	m := make(map[string]device.Setting, len(hw))
	for _, b := range hw {
		m[b.name] = device.Setting{Fixed: !b.on}
	}
	for _, b := range never {
		if s, ok := m[b.name]; ok && b.on {
			s.Fixed = true
			m[b.name] = s
		}
	}
	for _, b := range active {
		s := m[b.name]
		s.On = b.on
		m[b.name] = s
	}
	delete(m, "")
	return m, nil
}

// SetFeature switches one feature. The kernel may answer success without a change: another
// feature depends on it, or the driver refuses (netdev_update_features). Callers must read
// the feature back.
//
// The kernel stores the wanted setting even if the driver refuses it. It does not ask the
// driver again for a setting that is already stored (net/ethtool/features.c:
// ethnl_set_features). So SetFeature requests the present setting and then the wanted one.
func (c *Client) SetFeature(f device.Feature) error {
	if err := c.wishFeature(f); err != nil {
		return err
	}
	if now, err := c.Features(f.Dev); err != nil || now[f.Name].On == f.On {
		return err
	}
	was := f
	was.On = !f.On
	if err := c.wishFeature(was); err != nil {
		return err
	}
	return c.wishFeature(f)
}

func (c *Client) wishFeature(f device.Feature) error {
	err := c.set(unix.ETHTOOL_MSG_FEATURES_SET, f.Dev, func(ae *netlink.AttributeEncoder) {
		encodeBit(ae, unix.ETHTOOL_A_FEATURES_WANTED, f.Name, f.On)
	})
	if err != nil {
		return fmt.Errorf("set feature %s of %s: %w", f.Name, f.Dev, err)
	}
	return nil
}

// encodeBit adds a bitset in verbose form in which only one bit is named: the others stay as they are.
func encodeBit(ae *netlink.AttributeEncoder, attr uint16, name string, on bool) {
	ae.Nested(attr, func(set *netlink.AttributeEncoder) error {
		set.Nested(unix.ETHTOOL_A_BITSET_BITS, func(bits *netlink.AttributeEncoder) error {
			bits.Nested(unix.ETHTOOL_A_BITSET_BITS_BIT, func(b *netlink.AttributeEncoder) error {
				b.String(unix.ETHTOOL_A_BITSET_BIT_NAME, name)
				b.Flag(unix.ETHTOOL_A_BITSET_BIT_VALUE, on)
				return nil
			})
			return nil
		})
		return nil
	})
}

// SetPrivateFlag switches one private flag.
func (c *Client) SetPrivateFlag(f device.PrivFlag) error {
	err := c.set(unix.ETHTOOL_MSG_PRIVFLAGS_SET, f.Dev, func(ae *netlink.AttributeEncoder) {
		encodeBit(ae, unix.ETHTOOL_A_PRIVFLAGS_FLAGS, f.Name, f.On)
	})
	if err != nil {
		return fmt.Errorf("set private flag %s of %s: %w", f.Name, f.Dev, err)
	}
	return nil
}

// PrivateFlags returns the driver's private flags by name.
func (c *Client) PrivateFlags(dev string) (map[string]bool, error) {
	return read(c, "private flags", unix.ETHTOOL_MSG_PRIVFLAGS_GET, dev, decodePrivateFlags)
}

func decodePrivateFlags(b []byte) (map[string]bool, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, err
	}
	m := map[string]bool{}
	for ad.Next() {
		if ad.Type() != unix.ETHTOOL_A_PRIVFLAGS_FLAGS {
			continue
		}
		ad.Nested(func(nad *netlink.AttributeDecoder) error {
			bits, err := decodeBitset(nad)
			for _, b := range bits {
				m[b.name] = b.on
			}
			return err
		})
	}
	return m, ad.Err()
}

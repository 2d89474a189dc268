// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// Channels returns the channel counts in use and their maxima
// (ETHTOOL_MSG_CHANNELS_GET).
func (c *Client) Channels(dev string) (cur, most device.Channels, err error) {
	b, err := c.get(unix.ETHTOOL_MSG_CHANNELS_GET, dev, nil)
	if err == nil {
		cur, most, err = decodeChannels(b)
	}
	if err != nil {
		return cur, most, fmt.Errorf("get channels of %s: %w", dev, err)
	}
	cur.Dev, most.Dev = dev, dev
	return cur, most, nil
}

func decodeChannels(b []byte) (cur, most device.Channels, err error) {
	err = eachU32(b, map[uint16]*int{
		unix.ETHTOOL_A_CHANNELS_RX_COUNT: &cur.RX, unix.ETHTOOL_A_CHANNELS_RX_MAX: &most.RX,
		unix.ETHTOOL_A_CHANNELS_TX_COUNT: &cur.TX, unix.ETHTOOL_A_CHANNELS_TX_MAX: &most.TX,
		unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT: &cur.Combined, unix.ETHTOOL_A_CHANNELS_COMBINED_MAX: &most.Combined,
	})
	return cur, most, err
}

// SetChannels sets the channel counts. It sends only counts that differ from old, because
// drivers refuse kinds of channels that they lack.
func (c *Client) SetChannels(old, next device.Channels) error {
	err := c.set(unix.ETHTOOL_MSG_CHANNELS_SET, next.Dev, func(ae *netlink.AttributeEncoder) {
		changed(ae, unix.ETHTOOL_A_CHANNELS_RX_COUNT, old.RX, next.RX)
		changed(ae, unix.ETHTOOL_A_CHANNELS_TX_COUNT, old.TX, next.TX)
		changed(ae, unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT, old.Combined, next.Combined)
	})
	if err != nil {
		return fmt.Errorf("set channels of %s: %w%s", next.Dev, err, c.holders(err, old, next))
	}
	return nil
}

// holders returns text for an error message: the RSS tables and rules that use queues which
// the change would remove. It returns "" if err is not EINVAL. The kernel refuses such a
// change (net/ethtool/common.c: ethtool_check_max_channel); before Linux 6.11 the driver
// refuses it for rules.
func (c *Client) holders(err error, old, next device.Channels) string {
	if !errors.Is(err, unix.EINVAL) {
		return ""
	}
	var who []string
	tables, _ := c.RSS(next.Dev) // on an error, the message names no tables
	if next.RX+next.Combined >= old.RX+old.Combined {
		return fixed(tables)
	}
	for _, t := range tables {
		if n := len(t.Queues); n > 0 && slices.Max(t.Queues) >= next.RX+next.Combined {
			who = append(who, fmt.Sprintf("RSS context %d (queue %d)", t.Context, slices.Max(t.Queues)))
		}
	}
	rules, _ := c.Rules(next.Dev)
	for i, r := range rules.Rules {
		if r.Context == 0 && r.Queue >= next.RX+next.Combined {
			who = append(who, fmt.Sprintf("rule %d (%s, queue %d)", rules.Locations[i], r.Match, r.Queue))
		}
	}
	if len(who) == 0 {
		return ""
	}
	return ": " + strings.Join(who, ", ")
}

// fixed names the RSS tables that a user has set. On some cards, the table's size follows the
// number of channels. Such a card refuses more channels while a table is set, and mlx5 gives
// the reason only in the kernel's log (en_ethtool.c: mlx5e_ethtool_set_channels).
func fixed(tables []device.RSSTable) string {
	var who []string
	for _, t := range tables {
		switch {
		case t.Context != 0:
			who = append(who, fmt.Sprintf("RSS context %d", t.Context))
		case t.Configured:
			who = append(who, fmt.Sprintf("the default RSS table (ethtool -X %s default resets it)", t.Dev))
		}
	}
	if len(who) == 0 {
		return ""
	}
	return ": perhaps because these are set: " + strings.Join(who, ", ")
}

// CanSetChannels returns nil if the driver can set channels. It sends a request without
// changes. The kernel first checks that the driver has the operation, and does not call the
// driver if no value differs (net/ethtool/channels.c, ethnl_set_channels).
func (c *Client) CanSetChannels(dev string) error {
	return c.set(unix.ETHTOOL_MSG_CHANNELS_SET, dev, nil)
}

// CanSetCoalesce is CanSetChannels for coalescing (net/ethtool/coalesce.c).
func (c *Client) CanSetCoalesce(dev string) error {
	return c.set(unix.ETHTOOL_MSG_COALESCE_SET, dev, nil)
}

// Ring returns the ring sizes in use and their maxima.
func (c *Client) Ring(dev string) (cur, most device.Ring, err error) {
	b, err := c.get(unix.ETHTOOL_MSG_RINGS_GET, dev, nil)
	if err == nil {
		cur, most, err = decodeRing(b)
	}
	if err != nil {
		return cur, most, fmt.Errorf("get rings of %s: %w", dev, err)
	}
	cur.Dev, most.Dev = dev, dev
	return cur, most, nil
}

func decodeRing(b []byte) (cur, most device.Ring, err error) {
	err = eachU32(b, map[uint16]*int{
		unix.ETHTOOL_A_RINGS_RX: &cur.RX, unix.ETHTOOL_A_RINGS_RX_MAX: &most.RX,
		unix.ETHTOOL_A_RINGS_TX: &cur.TX, unix.ETHTOOL_A_RINGS_TX_MAX: &most.TX,
	})
	return cur, most, err
}

// SetRing sets the ring sizes that differ from old.
func (c *Client) SetRing(old, next device.Ring) error {
	err := c.set(unix.ETHTOOL_MSG_RINGS_SET, next.Dev, func(ae *netlink.AttributeEncoder) {
		changed(ae, unix.ETHTOOL_A_RINGS_RX, old.RX, next.RX)
		changed(ae, unix.ETHTOOL_A_RINGS_TX, old.TX, next.TX)
	})
	if err != nil {
		return fmt.Errorf("set rings of %s: %w", next.Dev, err)
	}
	return nil
}

// Coalesce returns the device's coalescing. has lists the parameters that the driver has,
// by their JSON names in device.Coalesce. The kernel leaves out the others
// (net/ethtool/coalesce.c: coalesce_put_u32).
func (c *Client) Coalesce(dev string) (v device.Coalesce, has []string, err error) {
	b, err := c.get(unix.ETHTOOL_MSG_COALESCE_GET, dev, nil)
	if err == nil {
		v, has, err = decodeCoalesce(b)
	}
	if err != nil {
		return device.Coalesce{}, nil, fmt.Errorf("get coalescing of %s: %w", dev, err)
	}
	v.Dev, v.Queue = dev, -1
	return v, has, nil
}

func decodeCoalesce(b []byte) (v device.Coalesce, has []string, err error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return v, nil, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.ETHTOOL_A_COALESCE_RX_USECS:
			v.RxUsecs, has = int(ad.Uint32()), append(has, "rxUsecs")
		case unix.ETHTOOL_A_COALESCE_TX_USECS:
			v.TxUsecs, has = int(ad.Uint32()), append(has, "txUsecs")
		case unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX:
			v.RxAdapt, has = ad.Uint8() != 0, append(has, "rxAdapt")
		case unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX:
			v.TxAdapt, has = ad.Uint8() != 0, append(has, "txAdapt")
		}
	}
	return v, has, ad.Err()
}

// SetCoalesce sets the fields of the device's coalescing that differ from old. It sends no
// others, because a driver refuses parameters that it lacks.
func (c *Client) SetCoalesce(old, next device.Coalesce) error {
	err := c.set(unix.ETHTOOL_MSG_COALESCE_SET, next.Dev, func(ae *netlink.AttributeEncoder) {
		changed(ae, unix.ETHTOOL_A_COALESCE_RX_USECS, old.RxUsecs, next.RxUsecs)
		changed(ae, unix.ETHTOOL_A_COALESCE_TX_USECS, old.TxUsecs, next.TxUsecs)
		changedBool(ae, unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, old.RxAdapt, next.RxAdapt)
		changedBool(ae, unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX, old.TxAdapt, next.TxAdapt)
	})
	if err != nil {
		return fmt.Errorf("set coalescing of %s: %w", next.Dev, err)
	}
	return nil
}

// Speed returns the link's speed in bit/s, or 0 if the device does not know it.
func (c *Client) Speed(dev string) (uint64, error) {
	b, err := c.get(unix.ETHTOOL_MSG_LINKMODES_GET, dev, nil)
	if err != nil {
		return 0, fmt.Errorf("get speed of %s: %w", dev, err)
	}
	return decodeSpeed(b)
}

// speedUnknown is SPEED_UNKNOWN of linux/ethtool.h, -1.
const speedUnknown = 0xffffffff

func decodeSpeed(b []byte) (uint64, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return 0, err
	}
	var speed uint64
	for ad.Next() {
		if ad.Type() != unix.ETHTOOL_A_LINKMODES_SPEED {
			continue
		}
		if mbit := ad.Uint32(); mbit != speedUnknown {
			speed = uint64(mbit) * 1e6
		}
	}
	return speed, ad.Err()
}

// eachU32 stores each u32 attribute whose type is in dst.
func eachU32(b []byte, dst map[uint16]*int) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for ad.Next() {
		if p := dst[ad.Type()]; p != nil {
			*p = int(ad.Uint32())
		}
	}
	return ad.Err()
}

func changed(ae *netlink.AttributeEncoder, attr uint16, old, next int) {
	if old != next {
		ae.Uint32(attr, uint32(next))
	}
}

func changedBool(ae *netlink.AttributeEncoder, attr uint16, old, next bool) {
	if old == next {
		return
	}
	var v uint8
	if next {
		v = 1
	}
	ae.Uint8(attr, v)
}

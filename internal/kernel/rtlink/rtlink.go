// SPDX-License-Identifier: Apache-2.0

// Package rtlink reads and writes attributes of network devices that only rtnetlink has
// (rtnetlink(7), linux/if_link.h): device.GSOLimit objects.
package rtlink

import (
	"cmp"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/lane/device"
)

// SkipStats is RTEXT_FILTER_SKIP_STATS for IFLA_EXT_MASK. Without it, the kernel adds about 300 bytes of
// counters to each link.
const SkipStats = 1 << 3

// Client is a connection to rtnetlink.
type Client struct{ nl *netlink.Conn }

// Open connects in the network namespace of the calling thread.
func Open() (*Client, error) {
	nl, err := nlsock.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Client{nl}, nil
}

// Close disconnects.
func (c *Client) Close() error { return c.nl.Close() }

// Read returns the present value of a device.GSOLimit. The error is ENODEV without the device.
func (c *Client) Read(o device.Object) (device.Object, error) {
	l, ok := o.(device.GSOLimit)
	if !ok {
		return nil, fmt.Errorf("object kind %q is not a link's", o.Kind())
	}
	msgs, err := c.request(unix.RTM_GETLINK, 0, l.Dev, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(unix.IFLA_EXT_MASK, SkipStats)
	})
	if err == nil && len(msgs) != 1 {
		err = fmt.Errorf("%d replies instead of one", len(msgs))
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", l.Key(), err)
	}
	now, err := GSOLimit(l.Dev, msgs[0].Data)
	if now == nil || err != nil {
		return nil, err
	}
	return *now, nil
}

// GSOLimit reads the limit in an RTM_NEWLINK message of a device. It returns nil if the kernel does not
// report it.
func GSOLimit(dev string, b []byte) (*device.GSOLimit, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return nil, fmt.Errorf("%d bytes of link: %w", len(b), unix.EBADMSG)
	}
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return nil, err
	}
	l := device.GSOLimit{Dev: dev}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_GSO_MAX_SIZE:
			l.Max = ad.Uint32()
		case unix.IFLA_GSO_IPV4_MAX_SIZE:
			l.MaxIPv4 = ad.Uint32()
		}
	}
	if l.Max == 0 || ad.Err() != nil {
		return nil, ad.Err()
	}
	return &l, nil
}

// Write changes a device.GSOLimit. The kernel refuses more than the device can take (tso_max_size).
func (c *Client) Write(old, next device.Object) error {
	l, ok := next.(device.GSOLimit)
	if !ok {
		return fmt.Errorf("%s: %w: a link's limit cannot be removed", cmp.Or(next, old).Key(), unix.EOPNOTSUPP)
	}
	if _, err := c.request(unix.RTM_NEWLINK, netlink.Acknowledge, l.Dev, func(ae *netlink.AttributeEncoder) {
		// The kernel takes them in this order. The first also sets the second, unless it is a BIG TCP
		// size (netif_set_gso_max_size).
		ae.Uint32(unix.IFLA_GSO_MAX_SIZE, l.Max)
		if l.MaxIPv4 != 0 {
			ae.Uint32(unix.IFLA_GSO_IPV4_MAX_SIZE, l.MaxIPv4)
		}
	}); err != nil {
		return fmt.Errorf("set %s to %s: %w", l.Key(), l.Brief(), err)
	}
	return nil
}

func (c *Client) request(typ netlink.HeaderType, flags netlink.HeaderFlags, dev string,
	body func(*netlink.AttributeEncoder)) ([]netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFNAME, dev)
	body(ae)
	attrs, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	msgs, err := c.nl.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | flags},
		Data:   append(make([]byte, unix.SizeofIfInfomsg), attrs...),
	})
	return msgs, extack.Error(err)
}

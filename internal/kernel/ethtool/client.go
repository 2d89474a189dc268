// SPDX-License-Identifier: Apache-2.0

// Package ethtool is a thin typed client of the kernel's ethtool interfaces: generic
// netlink, and the ioctl for what netlink lacks (driver information, per-queue coalescing,
// steering rules). It reads and writes device.Channels, Coalesce, Ring, Feature, PrivFlag, RSSTable
// and Rule objects. It chooses no queues. A new rule gets the lowest free location, or one that
// the driver chooses; the location is not part of a rule's identity. The package works in the
// network namespace of the thread that calls Open.
package ethtool

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/nlsock"
)

// A Client talks to the kernel. It is not safe for concurrent use.
type Client struct {
	nl     *genetlink.Conn
	family genetlink.Family
	fd     int // a socket of the namespace, for ioctl; -1 if there is none
	card   card
	// seen holds the rules that the method known has read, by device and location.
	seen map[string]map[uint32][]byte
}

// Open connects to the kernel. It needs the ethtool netlink family (Linux 5.6,
// CONFIG_ETHTOOL_NETLINK).
func Open() (*Client, error) {
	nl, err := nlsock.Dial(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	c, err := New(genetlink.NewConn(nl))
	if err != nil {
		nl.Close()
		return nil, err
	}
	c.fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	c.card = socket(c.fd)
	if err != nil {
		nl.Close()
		return nil, fmt.Errorf("socket for ethtool ioctl: %w", err)
	}
	return c, nil
}

// New makes a client from nl, without a socket for ioctl. The client's Close closes nl.
func New(nl *genetlink.Conn) (*Client, error) {
	family, err := nl.GetFamily(unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return nil, fmt.Errorf("ethtool netlink family: %w", extack.Error(err))
	}
	return &Client{nl: nl, family: family, fd: -1, card: socket(-1)}, nil
}

// Close closes the client's sockets.
func (c *Client) Close() error {
	if c.fd >= 0 {
		unix.Close(c.fd)
	}
	return c.nl.Close()
}

// get sends a request for one device and returns the reply's attributes.
func (c *Client) get(cmd uint8, dev string, body func(*netlink.AttributeEncoder)) ([]byte, error) {
	msgs, err := c.execute(cmd, dev, netlink.Request, body)
	if err != nil {
		return nil, err
	}
	if len(msgs) != 1 {
		return nil, fmt.Errorf("%d replies instead of one", len(msgs))
	}
	return msgs[0].Data, nil
}

// read sends a get request for a device and decodes the reply.
func read[T any](c *Client, what string, cmd uint8, dev string, decode func([]byte) (T, error)) (v T, err error) {
	b, err := c.get(cmd, dev, nil)
	if err == nil {
		v, err = decode(b)
	}
	if err != nil {
		return v, fmt.Errorf("get %s of %s: %w", what, dev, err)
	}
	return v, nil
}

func (c *Client) set(cmd uint8, dev string, body func(*netlink.AttributeEncoder)) error {
	_, err := c.execute(cmd, dev, netlink.Request|netlink.Acknowledge, body)
	return err
}

// headerAttr is the header's attribute number. It is the same in every ethtool request.
const headerAttr = unix.ETHTOOL_A_CHANNELS_HEADER

func (c *Client) execute(cmd uint8, dev string, flags netlink.HeaderFlags,
	body func(*netlink.AttributeEncoder)) ([]genetlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Nested(headerAttr, func(h *netlink.AttributeEncoder) error {
		h.String(unix.ETHTOOL_A_HEADER_DEV_NAME, dev)
		if flags&netlink.Acknowledge != 0 {
			// To some requests, the kernel sends a reply and an acknowledgement. The client
			// needs only the acknowledgement.
			h.Uint32(unix.ETHTOOL_A_HEADER_FLAGS, unix.ETHTOOL_FLAG_OMIT_REPLY)
		}
		return nil
	})
	if body != nil {
		body(ae)
	}
	data, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	msgs, err := c.nl.Execute(genetlink.Message{
		Header: genetlink.Header{Command: cmd, Version: unix.ETHTOOL_GENL_VERSION},
		Data:   data,
	}, c.family.ID, flags)
	return msgs, extack.Error(err)
}

// NotSupported reports whether err means that the device or driver lacks the operation.
// It is false if the kernel refuses the operation for another reason.
func NotSupported(err error) bool { return errors.Is(err, unix.EOPNOTSUPP) }

// absent reports whether err means that the object does not exist: the device is gone, or
// the driver has no such setting.
func absent(err error) bool {
	return NotSupported(err) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist)
}

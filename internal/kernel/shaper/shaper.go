// SPDX-License-Identifier: Apache-2.0

// Package shaper is a thin typed client of the net-shaper generic netlink family (Linux 6.13;
// Documentation/netlink/specs/net_shaper.yaml): the card's own minimum and maximum rate of each
// transmit queue. It makes no groups of queues. It works in the network namespace of the thread
// that first uses a Conn.
package shaper

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/genl"
	"github.com/niclane/niclane/lane/device"
)

// Family is the family's name.
const Family = "net-shaper"

// Commands and attributes of linux/net_shaper.h.
const (
	cmdGet    = 1
	cmdSet    = 2
	cmdDelete = 3
	cmdCapGet = 5

	attrHandle   = 1
	attrMetric   = 2
	attrMin      = 3
	attrMax      = 4
	attrBurst    = 5
	attrPriority = 6
	attrWeight   = 7
	attrIfindex  = 8
	attrParent   = 9

	attrHandleScope = 1
	attrHandleID    = 2

	attrCapsIfindex = 1
	attrCapsScope   = 2
	attrCapsBPS     = 3
	attrCapsMin     = 6
	attrCapsMax     = 7

	scopeNetdev = 1
	scopeQueue  = 2
	metricBPS   = 0
)

// A Conn talks to the kernel. It is not safe for concurrent use.
type Conn struct {
	*genl.Family
	index func(dev string) (int, error)
}

// Open makes a Conn. The Conn connects at its first use, because few cards have shapers. If the
// kernel lacks the family, the first use returns fs.ErrNotExist.
func Open() *Conn { return &Conn{genl.Named(Family), ifindex} }

// ifindex returns a device's index (netdevice(7)). net.InterfaceByName would list all devices,
// and a Kubernetes node has one for each pod.
func ifindex(dev string) (int, error) {
	req, err := unix.NewIfreq(dev)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", dev, unix.ENODEV) // the name is too long
	}
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(sock)
	if err := unix.IoctlIfreq(sock, unix.SIOCGIFINDEX, req); err != nil {
		return 0, fmt.Errorf("%s: %w", dev, err)
	}
	return int(int32(req.Uint32())), nil
}

// Caps tells which rates a device's queues support: a minimum, a maximum, or both.
type Caps struct{ Min, Max bool }

// Caps returns which rates (in bit/s) the queues of a device support. If the device has no
// shapers for its queues, the error is EOPNOTSUPP.
func (c *Conn) Caps(dev string) (Caps, error) {
	index, err := c.index(dev)
	if err != nil {
		return Caps{}, err
	}
	msgs, err := c.Execute(cmdCapGet, netlink.Request, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrCapsIfindex, uint32(index))
		ae.Uint32(attrCapsScope, scopeQueue)
	})
	if err != nil {
		return Caps{}, fmt.Errorf("%s: capabilities of its queues' shapers: %w", dev, err)
	}
	var caps Caps
	bps := false
	for _, m := range msgs {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return Caps{}, err
		}
		for ad.Next() {
			switch ad.Type() { // flags without a value
			case attrCapsBPS:
				bps = true
			case attrCapsMin:
				caps.Min = true
			case attrCapsMax:
				caps.Max = true
			}
		}
		if err := ad.Err(); err != nil {
			return Caps{}, err
		}
	}
	if !bps {
		return Caps{}, fmt.Errorf("%s: %w: its queues' shapers do not count bits", dev, unix.EOPNOTSUPP)
	}
	return caps, nil
}

// Shapers returns the shapers of a device's queues, in the kernel's order. If the device
// supports none, the error is EOPNOTSUPP.
func (c *Conn) Shapers(dev string) ([]device.Shaper, error) {
	index, err := c.index(dev)
	if err != nil {
		return nil, err
	}
	msgs, err := c.Execute(cmdGet, netlink.Request|netlink.Dump, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrIfindex, uint32(index))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: shapers: %w", dev, err)
	}
	var out []device.Shaper
	for _, m := range msgs {
		s, scope, err := decode(dev, m.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: shapers: %w", dev, err)
		}
		if scope == scopeQueue {
			out = append(out, s)
		}
	}
	return out, nil
}

// Read returns the present shaper of o's queue as a device.Shaper, or nil if the queue has none.
func (c *Conn) Read(o device.Object) (device.Object, error) {
	s, ok := o.(device.Shaper)
	if !ok {
		return nil, fmt.Errorf("object kind %q is not a shaper", o.Kind())
	}
	msgs, err := c.bound(cmdGet, netlink.Request, s, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case len(msgs) != 1:
		return nil, fmt.Errorf("%s: %d replies instead of one", s.Key(), len(msgs))
	}
	got, _, err := decode(s.Dev, msgs[0].Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Key(), err)
	}
	return got, nil
}

// Write changes a shaper from old to next; nil means absent. The error is EOPNOTSUPP if the
// card cannot do it, and ENOENT if the queue does not exist.
func (c *Conn) Write(old, next device.Object) error {
	if next == nil {
		s, ok := old.(device.Shaper)
		if !ok {
			return fmt.Errorf("object kind %q is not a shaper", old.Kind())
		}
		_, err := c.bound(cmdDelete, netlink.Request|netlink.Acknowledge, s, nil)
		return err
	}
	s, ok := next.(device.Shaper)
	if !ok {
		return fmt.Errorf("object kind %q is not a shaper", next.Kind())
	}
	if s.Other {
		return fmt.Errorf("%s: %w: it has settings that niclane does not make", s.Key(), unix.EOPNOTSUPP)
	}
	was, _ := old.(device.Shaper)
	_, err := c.bound(cmdSet, netlink.Request|netlink.Acknowledge, s, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrMetric, metricBPS)
		// If the request lacks a rate, the kernel keeps the old one. It refuses a kind of rate
		// that the card does not support, even with the value 0 (net_shaper_validate_caps).
		if s.Min != 0 || was.Min != 0 {
			ae.Uint64(attrMin, s.Min)
		}
		if s.Max != 0 || was.Max != 0 {
			ae.Uint64(attrMax, s.Max)
		}
	})
	return err
}

// bound sends a request about one queue's shaper.
func (c *Conn) bound(cmd uint8, flags netlink.HeaderFlags, s device.Shaper,
	more func(*netlink.AttributeEncoder)) ([]genetlink.Message, error) {
	index, err := c.index(s.Dev)
	if err != nil {
		return nil, err
	}
	msgs, err := c.Execute(cmd, flags, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrIfindex, uint32(index))
		ae.Nested(attrHandle, func(h *netlink.AttributeEncoder) error {
			h.Uint32(attrHandleScope, scopeQueue)
			h.Uint32(attrHandleID, uint32(s.Queue))
			return nil
		})
		if more != nil {
			more(ae)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Key(), err)
	}
	return msgs, nil
}

// decode reads one shaper.
func decode(dev string, b []byte) (s device.Shaper, scope uint32, err error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return s, 0, err
	}
	s.Dev = dev
	for ad.Next() {
		switch ad.Type() {
		case attrHandle:
			ad.Nested(func(h *netlink.AttributeDecoder) error {
				for h.Next() {
					switch h.Type() {
					case attrHandleScope:
						scope = h.Uint32()
					case attrHandleID:
						s.Queue = int(h.Uint32())
					}
				}
				return nil
			})
		case attrParent:
			// The parent of a queue without a group is the device
			// (net_shaper_default_parent).
			ad.Nested(func(h *netlink.AttributeDecoder) error {
				for h.Next() {
					if h.Type() == attrHandleScope && h.Uint32() != scopeNetdev {
						s.Other = true
					}
				}
				return nil
			})
		case attrMetric:
			if ad.Uint32() != metricBPS {
				s.Other = true
			}
		case attrMin:
			s.Min = number(ad)
		case attrMax:
			s.Max = number(ad)
		case attrBurst:
			s.Other = s.Other || number(ad) != 0
		case attrPriority, attrWeight:
			s.Other = s.Other || ad.Uint32() != 0
		}
	}
	return s, scope, ad.Err()
}

// number decodes a "uint", which has 32 or 64 bits.
func number(ad *netlink.AttributeDecoder) uint64 {
	if len(ad.Bytes()) == 4 {
		return uint64(ad.Uint32())
	}
	return ad.Uint64()
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/internal/kernel/rtlink"
)

// Flags of IFLA_XDP_FLAGS (linux/if_link.h).
const (
	xdpIfNoExist = 1 << 0
	xdpSKB       = 1 << 1
	xdpDriver    = 1 << 2
	xdpHardware  = 1 << 3
	xdpReplace   = 1 << 4
)

// A slot is the program in one of a device's XDP modes.
type slot struct {
	mode    string // "native", "generic", "offload"
	program uint32 // ID
}

var slotModes = [...]struct {
	attr uint16
	mode string
	flag uint32
}{
	{unix.IFLA_XDP_DRV_PROG_ID, "native", xdpDriver},
	{unix.IFLA_XDP_SKB_PROG_ID, "generic", xdpSKB},
	{unix.IFLA_XDP_HW_PROG_ID, "offload", xdpHardware},
}

func modeFlag(mode string) uint32 {
	for _, m := range slotModes {
		if m.mode == mode {
			return m.flag
		}
	}
	return 0
}

// conn returns the connection to rtnetlink.
func (c *Client) conn() (*netlink.Conn, error) {
	if c.nl == nil {
		nl, err := nlsock.Dial(unix.NETLINK_ROUTE)
		if err != nil {
			return nil, err
		}
		c.nl = nl
	}
	return c.nl, nil
}

// slots returns the XDP programs of a device. There are several only if one is offloaded
// to the hardware.
func (c *Client) slots(dev string) ([]slot, error) {
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFNAME, dev)
	ae.Uint32(unix.IFLA_EXT_MASK, rtlink.SkipStats)
	msgs, err := c.link(unix.RTM_GETLINK, 0, make([]byte, unix.SizeofIfInfomsg), ae)
	if err == nil && len(msgs) != 1 {
		err = fmt.Errorf("%d replies instead of one", len(msgs))
	}
	var out []slot
	if err == nil {
		out, err = decodeSlots(msgs[0].Data)
	}
	if err != nil {
		return nil, fmt.Errorf("get XDP of %s: %w", dev, err)
	}
	return out, nil
}

func (c *Client) link(typ netlink.HeaderType, flags netlink.HeaderFlags, head []byte,
	ae *netlink.AttributeEncoder) ([]netlink.Message, error) {
	nl, err := c.conn()
	if err != nil {
		return nil, err
	}
	attrs, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	msgs, err := nl.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | flags}, Data: append(head, attrs...),
	})
	return msgs, extack.Error(err)
}

// decodeSlots reads IFLA_XDP of RTM_NEWLINK. Kernels before 4.18 have no IDs by mode; they
// are too old for niclane.
func decodeSlots(b []byte) ([]slot, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return nil, fmt.Errorf("%d bytes of link: %w", len(b), unix.EBADMSG)
	}
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return nil, err
	}
	ids := map[uint16]uint32{}
	for ad.Next() {
		if ad.Type() == unix.IFLA_XDP {
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					switch ad.Type() {
					case unix.IFLA_XDP_DRV_PROG_ID, unix.IFLA_XDP_SKB_PROG_ID, unix.IFLA_XDP_HW_PROG_ID:
						ids[ad.Type()] = ad.Uint32()
					}
				}
				return nil
			})
		}
	}
	var out []slot
	for _, m := range slotModes {
		if id := ids[m.attr]; id != 0 {
			out = append(out, slot{m.mode, id})
		}
	}
	return out, ad.Err()
}

// setSlot exchanges the program of a slot. program is the new program's descriptor, and
// expected that of the present program; -1 means none. The kernel compares and exchanges under
// its lock. EBUSY or EEXIST means that the slot did not hold the expected program.
func (c *Client) setSlot(dev, mode string, program, expected int) error {
	flags := modeFlag(mode)
	if flags == 0 {
		return fmt.Errorf("%w: XDP mode %q is not native or generic", unix.EINVAL, mode)
	}
	head := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint16(head, unix.AF_UNSPEC)
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFNAME, dev)
	ae.Nested(unix.IFLA_XDP, func(ae *netlink.AttributeEncoder) error {
		ae.Int32(unix.IFLA_XDP_FD, int32(program))
		if expected < 0 {
			flags |= xdpIfNoExist
		} else {
			flags |= xdpReplace
			ae.Int32(unix.IFLA_XDP_EXPECTED_FD, int32(expected))
		}
		ae.Uint32(unix.IFLA_XDP_FLAGS, flags)
		return nil
	})
	_, err := c.link(unix.RTM_SETLINK, netlink.Acknowledge, head, ae)
	return err
}

// isTaken reports whether an error of setSlot means that a foreign program has the slot.
// EBUSY means that a program or a bpf_link is in the slot. EEXIST means that the program is
// in another mode, or is not the expected one.
func isTaken(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) }

// SPDX-License-Identifier: Apache-2.0

// Package dcb reads what a device does with the class of received packets: Data Center Bridging of
// IEEE 802.1Qaz, by the kernel's dcbnl (linux/dcbnl.h, net/dcb/dcbnl.c). It writes nothing.
package dcb

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/lane/device"
)

// Commands, attributes and selectors of linux/dcbnl.h.
const (
	cmdIEEEGet = 21

	attrIfname = 1
	attrIEEE   = 13

	ieeeETS      = 1
	ieeeAppTable = 3
	ieeeTrust    = 11 // Linux 6.2

	sizeofETS = 59
	etsPrioTC = 27 // offset of struct ieee_ets' prio_tc
	sizeofApp = 4
)

// Get returns what the device's driver says of Data Center Bridging. If the driver has no dcbnl, or the
// kernel no CONFIG_DCB, the error is EOPNOTSUPP. conn is a connection to rtnetlink, in the device's
// network namespace. Get needs no privilege.
func Get(conn *netlink.Conn, dev string) (*device.DCB, error) {
	ae := netlink.NewAttributeEncoder()
	ae.String(attrIfname, dev)
	attrs, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	// struct dcbmsg: family, command, padding.
	data := append([]byte{unix.AF_UNSPEC, cmdIEEEGet, 0, 0}, attrs...)
	msgs, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETDCB, Flags: netlink.Request}, Data: data,
	})
	if err != nil {
		return nil, fmt.Errorf("get DCB of %s: %w", dev, extack.Error(err))
	}
	if len(msgs) != 1 {
		return nil, fmt.Errorf("get DCB of %s: %d answers: %w", dev, len(msgs), unix.EBADMSG)
	}
	d, err := decode(msgs[0].Data)
	if err != nil {
		return nil, fmt.Errorf("get DCB of %s: %w", dev, err)
	}
	return d, nil
}

func decode(b []byte) (*device.DCB, error) {
	if len(b) < 4 || b[1] != cmdIEEEGet {
		return nil, fmt.Errorf("no answer to this request: %w", unix.EBADMSG)
	}
	ad, err := netlink.NewAttributeDecoder(b[4:])
	if err != nil {
		return nil, err
	}
	d := &device.DCB{}
	for ad.Next() {
		if ad.Type() == attrIEEE {
			ad.Nested(func(ad *netlink.AttributeDecoder) error { return ieee(d, ad) })
		}
	}
	if err := ad.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(d.Apps, func(a, b device.DCBApp) int {
		return cmp.Or(cmp.Compare(a.Selector, b.Selector), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Priority, b.Priority))
	})
	return d, nil
}

// ieee reads the attributes of enum ieee_attrs.
func ieee(d *device.DCB, ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		switch ad.Type() {
		case ieeeETS:
			b := ad.Bytes()
			if len(b) < sizeofETS {
				return fmt.Errorf("struct ieee_ets of %d bytes: %w", len(b), unix.EBADMSG)
			}
			d.Classes = make([]int, device.DCBPriorities)
			for i := range d.Classes {
				d.Classes[i] = int(b[etsPrioTC+i])
			}
		case ieeeAppTable:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					b := ad.Bytes() // struct dcb_app: selector, priority, protocol
					if len(b) < sizeofApp {
						return fmt.Errorf("struct dcb_app of %d bytes: %w", len(b), unix.EBADMSG)
					}
					d.Apps = append(d.Apps, device.DCBApp{Selector: device.DCBSelector(b[0]),
						ID: int(binary.NativeEndian.Uint16(b[2:])), Priority: int(b[1])})
				}
				return ad.Err()
			})
		case ieeeTrust:
			d.Trust = []string{}
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					d.Trust = append(d.Trust, device.DCBSelector(ad.Uint8()))
				}
				return ad.Err()
			})
		}
	}
	return ad.Err()
}

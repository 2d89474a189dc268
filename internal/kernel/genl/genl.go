// SPDX-License-Identifier: Apache-2.0

// Package genl is a connection to one generic netlink family. It holds the common part of
// the thin clients of several families.
package genl

import (
	"errors"
	"fmt"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/nlsock"
)

// A Family is a connection to a generic netlink family. It connects at its first use, because
// few machines have devices that most families serve. It is not safe for concurrent use.
type Family struct {
	name   string
	nl     *genetlink.Conn // nil before the first use
	family genetlink.Family
}

// Named returns a Family that connects to the family with that name.
func Named(name string) *Family { return &Family{name: name} }

// Connect connects, if the family is not connected yet. If the kernel lacks the family, the
// error is fs.ErrNotExist.
func (f *Family) Connect() error {
	if f.nl != nil {
		return nil
	}
	nl, err := nlsock.Dial(unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	if err := f.Use(genetlink.NewConn(nl)); err != nil {
		return errors.Join(err, nl.Close())
	}
	return nil
}

// Use makes f use nl as its connection. Close then closes nl.
func (f *Family) Use(nl *genetlink.Conn) error {
	family, err := nl.GetFamily(f.name)
	if err != nil {
		return fmt.Errorf("netlink family %s: %w", f.name, extack.Error(err))
	}
	f.nl, f.family = nl, family
	return nil
}

// Close closes the connection, if there is one.
func (f *Family) Close() error {
	if f.nl == nil {
		return nil
	}
	return f.nl.Close()
}

// Execute sends a command with attributes (nil for none) and returns the replies. Its errors
// contain the kernel's text (extack).
func (f *Family) Execute(command uint8, flags netlink.HeaderFlags,
	attributes func(*netlink.AttributeEncoder)) ([]genetlink.Message, error) {
	if err := f.Connect(); err != nil {
		return nil, err
	}
	return f.send(f.family.ID, genetlink.Header{Command: command, Version: f.family.Version}, flags, attributes)
}

// Policies dumps the kernel's policy for a command. The family must be connected.
func (f *Family) Policies(command uint8) ([]genetlink.Message, error) {
	const familyID, op = 1, 10 // CTRL_ATTR_FAMILY_ID, CTRL_ATTR_OP of linux/genetlink.h
	return f.send(unix.GENL_ID_CTRL, genetlink.Header{Command: unix.CTRL_CMD_GETPOLICY, Version: 1},
		netlink.Request|netlink.Dump, func(ae *netlink.AttributeEncoder) {
			ae.Uint16(familyID, f.family.ID)
			ae.Uint32(op, uint32(command))
		})
}

func (f *Family) send(to uint16, h genetlink.Header, flags netlink.HeaderFlags,
	attributes func(*netlink.AttributeEncoder)) ([]genetlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	if attributes != nil {
		attributes(ae)
	}
	b, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	msgs, err := f.nl.Execute(genetlink.Message{Header: h, Data: b}, to, flags)
	return msgs, extack.Error(err)
}

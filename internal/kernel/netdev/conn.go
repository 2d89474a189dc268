// SPDX-License-Identifier: Apache-2.0

// Package netdev is a thin typed client of the netdev generic netlink family. It shows which
// NAPI polls which queue, and each NAPI's interrupt, thread and configuration. It reads and
// writes device.NAPIConfig and device.Thread objects. It starts and stops no NAPI and chooses
// no values. It works in the network namespace of the thread that calls Open. A device that
// is down has neither queues nor NAPIs here (net/core/netdev-genl.c).
package netdev

import (
	"fmt"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/genl"
)

// Family is the family's name.
const Family = "netdev"

// Commands and attributes of Documentation/netlink/specs/netdev.yaml.
const (
	cmdDevGet   = 1
	cmdQueueGet = 10
	cmdNAPIGet  = 11
	cmdNAPISet  = 14

	attrDevIfindex = 1
	attrDevXDP     = 3

	attrQueueID      = 1
	attrQueueIfindex = 2
	attrQueueType    = 3
	attrQueueNAPI    = 4

	attrNAPIIfindex    = 1
	attrNAPIID         = 2
	attrNAPIIRQ        = 3
	attrNAPIPID        = 4
	attrNAPIDefer      = 5
	attrNAPIGROFlush   = 6
	attrNAPIIRQSuspend = 7
	attrNAPIThreaded   = 8
)

// A Conn talks to the kernel. It is not safe for concurrent use.
type Conn struct{ *genl.Family }

// Dial connects. Kernels before 6.3 lack the family (ENOENT). Linux 6.8 added queues and
// NAPIs.
func Dial() (*Conn, error) {
	f := genl.Named(Family)
	if err := f.Connect(); err != nil {
		return nil, err
	}
	return &Conn{f}, nil
}

// New makes a Conn from a generic netlink connection, which Close closes.
func New(nl *genetlink.Conn) (*Conn, error) {
	f := genl.Named(Family)
	if err := f.Use(nl); err != nil {
		return nil, err
	}
	return &Conn{f}, nil
}

// all dumps the objects of one kind that an interface has, and decodes each.
func all[T any](c *Conn, what string, cmd uint8, attr uint16, ifindex int,
	decode func([]byte) (T, error)) ([]T, error) {
	msgs, err := c.Execute(cmd, netlink.Request|netlink.Dump, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attr, uint32(ifindex))
	})
	if err != nil {
		return nil, fmt.Errorf("get %s of interface %d: %w", what, ifindex, err)
	}
	out := make([]T, 0, len(msgs))
	for _, m := range msgs {
		v, err := decode(m.Data)
		if err != nil {
			return nil, fmt.Errorf("get %s of interface %d: %w", what, ifindex, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// XDPFeatures returns the device's NETDEV_XDP_ACT_* bits (linux/netdev.h).
func (c *Conn) XDPFeatures(ifindex int) (uint64, error) {
	msgs, err := c.Execute(cmdDevGet, netlink.Request, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrDevIfindex, uint32(ifindex))
	})
	if err != nil {
		return 0, fmt.Errorf("get XDP features of interface %d: %w", ifindex, err)
	}
	if len(msgs) != 1 {
		return 0, fmt.Errorf("get XDP features of interface %d: %d replies instead of one", ifindex, len(msgs))
	}
	return decodeXDP(msgs[0].Data)
}

func decodeXDP(b []byte) (uint64, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return 0, err
	}
	var v uint64
	for ad.Next() {
		if ad.Type() == attrDevXDP {
			v = ad.Uint64()
		}
	}
	return v, ad.Err()
}

// A Queue is one receive or transmit queue in use.
type Queue struct {
	ID   int
	TX   bool
	NAPI uint32 // 0 if the driver does not report it
}

// Queues returns the device's queues in the kernel's order: receive, then
// transmit, ascending. A device that is down has none.
func (c *Conn) Queues(ifindex int) ([]Queue, error) {
	return all(c, "queues", cmdQueueGet, attrQueueIfindex, ifindex, decodeQueue)
}

func decodeQueue(b []byte) (Queue, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return Queue{}, err
	}
	var q Queue
	for ad.Next() {
		switch ad.Type() {
		case attrQueueID:
			q.ID = int(ad.Uint32())
		case attrQueueType:
			q.TX = ad.Uint32() == 1
		case attrQueueNAPI:
			q.NAPI = ad.Uint32()
		}
	}
	return q, ad.Err()
}

// A Threaded is the threading mode of a NAPI.
type Threaded uint32

// The values of NETDEV_A_NAPI_THREADED.
const (
	ThreadedOff  Threaded = 0
	ThreadedOn   Threaded = 1
	ThreadedBusy Threaded = 2 // Linux 6.19
)

// A NAPI is a polling instance, as napi-get shows it.
type NAPI struct {
	ID  uint32
	IRQ int // 0 if the driver does not report it
	PID int // of the kernel thread, 0 if there is none

	DeferHardIRQs     uint32
	GROFlushTimeout   uint64 // ns
	IRQSuspendTimeout uint64 // ns
	Threaded          Threaded
	// HasThreaded is false before Linux 6.17; there, only PID shows the mode.
	HasThreaded bool
	// HasConfig is false before Linux 6.13.
	HasConfig bool

	Ifindex int // of the NAPI's device
}

// NAPIs returns the device's NAPIs in the kernel's order, highest ID first. A device that is
// down has none.
func (c *Conn) NAPIs(ifindex int) ([]NAPI, error) {
	return all(c, "NAPIs", cmdNAPIGet, attrNAPIIfindex, ifindex, decodeNAPI)
}

// NAPI returns the NAPI with an ID, or ENOENT if the device has no such NAPI. IDs are unique in
// the network namespace. The kernel does not reuse an ID while others are free (napi_hash_add).
func (c *Conn) NAPI(ifindex int, id uint32) (NAPI, error) {
	msgs, err := c.Execute(cmdNAPIGet, netlink.Request, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrNAPIID, id)
	})
	if err != nil {
		return NAPI{}, fmt.Errorf("get NAPI %d: %w", id, err)
	}
	if len(msgs) != 1 {
		return NAPI{}, fmt.Errorf("get NAPI %d: %d replies instead of one", id, len(msgs))
	}
	n, err := decodeNAPI(msgs[0].Data)
	if err != nil {
		return NAPI{}, fmt.Errorf("get NAPI %d: %w", id, err)
	}
	if n.Ifindex != ifindex {
		return NAPI{}, fmt.Errorf("get NAPI %d: it is interface %d's, not %d's: %w", id, n.Ifindex, ifindex,
			unix.ENOENT)
	}
	return n, nil
}

func decodeNAPI(b []byte) (NAPI, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return NAPI{}, err
	}
	var n NAPI
	for ad.Next() {
		switch ad.Type() {
		case attrNAPIIfindex:
			n.Ifindex = int(ad.Uint32())
		case attrNAPIID:
			n.ID = ad.Uint32()
		case attrNAPIIRQ:
			n.IRQ = int(ad.Uint32())
		case attrNAPIPID:
			n.PID = int(ad.Uint32())
		case attrNAPIDefer:
			n.DeferHardIRQs, n.HasConfig = ad.Uint32(), true
		case attrNAPIGROFlush:
			n.GROFlushTimeout, n.HasConfig = wideUint(ad), true
		case attrNAPIIRQSuspend:
			n.IRQSuspendTimeout = wideUint(ad)
		case attrNAPIThreaded:
			n.Threaded, n.HasThreaded = Threaded(wideUint(ad)), true
		}
	}
	return n, ad.Err()
}

// wideUint reads the kernel's NLA_UINT: 4 bytes if the value fits, else 8.
func wideUint(ad *netlink.AttributeDecoder) uint64 {
	if len(ad.Bytes()) == 4 {
		return uint64(ad.Uint32())
	}
	return ad.Uint64()
}

func putWideUint(ae *netlink.AttributeEncoder, attr uint16, v uint64) {
	if v <= 0xffffffff {
		ae.Uint32(attr, uint32(v))
		return
	}
	ae.Uint64(attr, v)
}

// SetNAPI changes the NAPI id from old to next. It sends only the fields that differ. old is the
// value that NAPIs returned. EOPNOTSUPP means that the kernel has no napi-set (before 6.13).
// Before 6.17, napi-set refuses Threaded.
func (c *Conn) SetNAPI(id uint32, old, next NAPI) error {
	_, err := c.Execute(cmdNAPISet, netlink.Request|netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrNAPIID, id)
		if next.DeferHardIRQs != old.DeferHardIRQs {
			ae.Uint32(attrNAPIDefer, next.DeferHardIRQs)
		}
		if next.GROFlushTimeout != old.GROFlushTimeout {
			putWideUint(ae, attrNAPIGROFlush, next.GROFlushTimeout)
		}
		if next.IRQSuspendTimeout != old.IRQSuspendTimeout {
			putWideUint(ae, attrNAPIIRQSuspend, next.IRQSuspendTimeout)
		}
		if next.Threaded != old.Threaded {
			ae.Uint32(attrNAPIThreaded, uint32(next.Threaded))
		}
	})
	if err != nil {
		return fmt.Errorf("set NAPI %d: %w", id, err)
	}
	return nil
}

var errNoThreaded = fmt.Errorf("napi-set has no threaded (Linux 6.17): %w", unix.EOPNOTSUPP)

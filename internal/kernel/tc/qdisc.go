// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

const (
	attrHTBInit   = 2  // TCA_HTB_INIT: struct tc_htb_glob
	htbVersion    = 3  // TC_HTB_PROTOVER
	htbR2Q        = 10 // tc's default; without effect, since each class of niclane has a quantum
	sizeofHTBGlob = 20
)

// qdisc returns the qdisc at a parent, or nil if there is none or only the kernel's default.
//
// It searches in a dump of the device's qdiscs. The kernel sends the answer to a request for a
// single qdisc or class to every listener of RTNLGRP_TC (qdisc_get_notify and tclass_notify in
// net/sched/sch_api.c). A watch reads after each notification, and would so notify itself again
// and again.
func (c *Client) qdisc(dev, parent string) (*device.Qdisc, error) {
	p, err := parseParent(parent)
	if err != nil {
		return nil, err
	}
	reps, err := c.qdiscs(dev)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(reps, func(r reply) bool { return r.parent == p })
	if i < 0 {
		// The kernel does not show built-in and invisible qdiscs: they are defaults.
		return nil, nil
	}
	q, err := qdiscOf(dev, reps[i])
	if err != nil || q.Handle == FormatHandle(0) {
		return nil, err
	}
	return &q.Qdisc, nil
}

// Qdiscs returns a device's qdiscs in the kernel's order, with the defaults.
func (c *Client) Qdiscs(dev string) ([]device.QdiscState, error) {
	reps, err := c.qdiscs(dev)
	if err != nil {
		return nil, err
	}
	var out []device.QdiscState
	for _, r := range reps {
		q, err := qdiscOf(dev, r)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

func (c *Client) qdiscs(dev string) ([]reply, error) {
	all, err := c.allQdiscs(dev)
	return slices.DeleteFunc(all, standIn), err
}

func (c *Client) allQdiscs(dev string) ([]reply, error) {
	return c.list(dev, "qdiscs", request{typ: unix.RTM_GETQDISC})
}

// A stand-in is a pfifo_fast in the place of a leaf of mq or mqprio that niclane has removed. The
// kernel puts noop there, which drops all packets of the queue as long as the root exists
// (net/sched/sch_generic.c: dev_graft_qdisc), and it cannot make its default again. A stand-in
// counts as that default. Its major handle number is firstStandIn plus the number of the queue.
const (
	standInKind             = "pfifo_fast"
	firstStandIn, standsIns = 0x4100, 0x1000
)

func standIn(r reply) bool {
	major := r.handle >> 16
	return r.kind == standInKind && major >= firstStandIn && major < firstStandIn+standsIns
}

func qdiscOf(dev string, r reply) (device.QdiscState, error) {
	q := device.QdiscState{
		Qdisc: device.Qdisc{
			Dev: dev, Parent: formatParent(r.parent), Type: r.kind, Handle: FormatHandle(r.handle),
		},
		Options:      r.options,
		IngressBlock: r.ingressBlock, EgressBlock: r.egressBlock,
	}
	if decode := qdiscDecoders[r.kind]; decode != nil {
		if err := decode(&q.Qdisc, r.options); err != nil {
			return q, fmt.Errorf("%s: options of %s %s: %w", dev, r.kind, q.Handle, err)
		}
	}
	return q, nil
}

// qdiscDecoders decode the options of each kind that has options.
var qdiscDecoders = map[string]func(*device.Qdisc, []byte) error{
	"htb": decodeHTB, "tbf": decodeTBF, "cake": decodeCake, "mqprio": decodeMqprio, "pfifo": decodePFIFO,
	"fq": decodeFQ,
}

func decodeHTB(q *device.Qdisc, options []byte) error {
	ad, err := netlink.NewAttributeDecoder(options)
	var glob []byte
	if err == nil {
		for ad.Next() {
			switch ad.Type() {
			case attrHTBInit:
				glob = ad.Bytes()
			case attrHTBOffload:
				q.Offload = true
			}
		}
		err = ad.Err()
	}
	if err != nil || len(glob) < sizeofHTBGlob {
		return fmt.Errorf("%d bytes: %w", len(glob), errors.Join(unix.EBADMSG, err))
	}
	q.DefaultClass = uint16(binary.NativeEndian.Uint32(glob[8:]))
	return nil
}

// decodePFIFO reads struct tc_fifo_qopt. The options are this structure, without attributes.
func decodePFIFO(q *device.Qdisc, options []byte) error {
	if len(options) < 4 {
		return fmt.Errorf("%d bytes: %w", len(options), unix.EBADMSG)
	}
	q.Limit = binary.NativeEndian.Uint32(options)
	return nil
}

// qdiscPlace returns a request that identifies the qdisc q.
func (c *Client) qdiscPlace(q device.Qdisc) (r request, err error) {
	if r.ifindex, err = c.Index(q.Dev); err != nil {
		return r, err
	}
	if r.parent, err = parseParent(q.Parent); err != nil {
		return r, err
	}
	r.handle, err = ParseHandle(q.Handle)
	return r, err
}

func (c *Client) qdiscRequest(q device.Qdisc) (request, error) {
	r, err := c.qdiscPlace(q)
	if err != nil {
		return request{}, err
	}
	r.kind = q.Type
	switch q.Type {
	case "clsact", "mq", "fq_codel":
	case "pfifo":
		r.raw = binary.NativeEndian.AppendUint32(nil, q.Limit)
	case "fq":
		if r.options, err = encodeFQ(q); err != nil {
			return request{}, err
		}
	case "tbf":
		if r.options, err = encodeTBF(q); err != nil {
			return request{}, err
		}
	case "cake":
		if r.options, err = encodeCake(q); err != nil {
			return request{}, err
		}
	case "mqprio":
		if r.raw, err = encodeMqprio(q); err != nil {
			return request{}, err
		}
	case "htb":
		glob := make([]byte, sizeofHTBGlob)
		binary.NativeEndian.PutUint32(glob, htbVersion)
		binary.NativeEndian.PutUint32(glob[4:], htbR2Q)
		binary.NativeEndian.PutUint32(glob[8:], uint32(q.DefaultClass))
		r.options = func(ae *netlink.AttributeEncoder) {
			ae.Bytes(attrHTBInit, glob)
			ae.Flag(attrHTBOffload, q.Offload)
		}
	default:
		return request{}, fmt.Errorf("qdisc kind %q: %w: niclane makes only htb, clsact, mq, mqprio, tbf, pfifo, "+
			"fq, fq_codel and cake", q.Type, unix.EOPNOTSUPP)
	}
	return r, nil
}

func (c *Client) addQdisc(q device.Qdisc) error {
	r, err := c.qdiscRequest(q)
	if err != nil {
		return qdiscError("add", q, err)
	}
	r.typ, r.flags = unix.RTM_NEWQDISC, netlink.Create|netlink.Excl
	if q.Parent != "root" && q.Parent != "clsact" {
		all, err := c.allQdiscs(q.Dev)
		if err != nil {
			return qdiscError("add", q, err)
		}
		if slices.ContainsFunc(all, func(leaf reply) bool { return leaf.parent == r.parent && standIn(leaf) }) {
			r.flags = netlink.Create | netlink.Replace
		}
	}
	_, err = c.do(r)
	switch {
	case err != nil && q.Mode != "":
		err = channelError(err)
	case err == nil && q.Mode != "":
		err = c.checkChannel(q)
	}
	return qdiscError("add", q, err)
}

// channelError adds a probable cause to err. Drivers write the cause only to the kernel's log.
func channelError(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: an RDMA driver is bound to the card (rdma link), or something else has its "+
			"transmit scheduler", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: the driver refuses these traffic classes (dmesg says why)", err)
	}
	return err
}

// checkChannel reads an mqprio back, and removes it if it differs. Some drivers accept the mode
// but ignore it and do DCB: each class then has a share of all queues, and no rate
// (broadcom/bnxt/bnxt.c: bnxt_setup_tc; ixgbe).
func (c *Client) checkChannel(q device.Qdisc) error {
	got, err := c.qdisc(q.Dev, q.Parent)
	if err != nil || got == nil || device.Equal(*got, q) {
		return err
	}
	err = fmt.Errorf("%w: the driver takes mode %s for DCB: the classes have queues %s, not %s", unix.EOPNOTSUPP,
		q.Mode, got.Queues, q.Queues)
	return errors.Join(err, c.deleteQdisc(*got))
}

// replaceLeaf replaces the leaf qdisc of a class by one of another kind. The kernel removes the
// old qdisc when it grafts the new one. The new qdisc needs another handle
// (net/sched/sch_api.c: tc_modify_qdisc).
func (c *Client) replaceLeaf(q device.Qdisc) error {
	r, err := c.qdiscRequest(q)
	return qdiscError("replace", q, c.send(r, err, unix.RTM_NEWQDISC, netlink.Create|netlink.Replace))
}

// swapRoot replaces a root qdisc by one of another kind: an mq with the kernel's default leaves by
// niclane's, or the reverse. It refuses if anything is attached to the old one. It removes the old one
// first if the card takes part, see changeQdisc about mqprio, and if both have one handle: the kernel
// changes no qdisc's kind (net/sched/sch_api.c: tc_modify_qdisc). Otherwise the device has one of the
// two at any time.
func (c *Client) swapRoot(old, q device.Qdisc) error {
	who, err := c.Occupants(old)
	if err == nil && old.Type == "mq" && len(who) > 0 {
		err = fmt.Errorf("%w: its removal would also remove %s", unix.EBUSY, strings.Join(who, ", "))
	}
	if err != nil {
		return qdiscError("replace", q, err)
	}
	if old.Type != "mqprio" && q.Type != "mqprio" && !old.Offload && !q.Offload && old.Handle != q.Handle {
		return c.replaceLeaf(q)
	}
	if err := c.deleteQdisc(old); err != nil {
		return err
	}
	if err := c.addQdisc(q); err != nil {
		return errors.Join(err, c.addQdisc(old))
	}
	return nil
}

// changeQdisc changes a qdisc. The kernel refuses this for kinds without a change operation,
// such as htb. changeQdisc removes an mqprio and then adds the new one. If it grafted the new
// one in place of the old one, the kernel would then remove the old one, and with it the traffic
// classes (net/sched/sch_mqprio.c: mqprio_destroy). For a moment there is no mqprio. changeQdisc
// refuses the change if anything is attached to the mqprio.
func (c *Client) changeQdisc(old, q device.Qdisc) error {
	if q.Parent != "root" && q.Parent != "clsact" && old.Type != q.Type && old.Handle != q.Handle {
		return c.replaceLeaf(q)
	}
	if q.Parent == "root" && (old.Type != q.Type || old.Handle != q.Handle) && (old.Type == "mq" || q.Type == "mq") {
		return c.swapRoot(old, q)
	}
	if old.Type != q.Type || old.Handle != q.Handle {
		return qdiscError("change", q, fmt.Errorf("%w: %s %s is there", unix.EEXIST, old.Type, old.Handle))
	}
	if q.Type == "mqprio" {
		if _, err := encodeMqprio(q); err != nil {
			return qdiscError("change", q, err)
		}
		who, err := c.Occupants(old)
		if err == nil && len(who) > 0 {
			err = fmt.Errorf("%w: its removal would also remove %s", unix.EBUSY, strings.Join(who, ", "))
		}
		if err != nil {
			return qdiscError("change", q, err)
		}
		if err := c.deleteQdisc(old); err != nil {
			return err
		}
		err = c.addQdisc(q)
		if err != nil {
			err = errors.Join(err, c.addQdisc(old))
		}
		return err
	}
	r, err := c.qdiscRequest(q)
	return qdiscError("change", q, c.send(r, err, unix.RTM_NEWQDISC, 0))
}

// deleteQdisc deletes a qdisc. Its request has the handle, so that the kernel refuses if another
// qdisc is now in that place.
func (c *Client) deleteQdisc(q device.Qdisc) error {
	r, err := c.qdiscPlace(q)
	if err == nil && q.Parent != "root" && q.Parent != "clsact" {
		reps, err := c.qdiscs(q.Dev)
		if err != nil {
			return qdiscError("delete", q, err)
		}
		if slices.ContainsFunc(reps, func(root reply) bool {
			return root.parent == handleRoot && root.handle>>16 == r.parent>>16 &&
				(root.kind == "mq" || root.kind == "mqprio")
		}) {
			if !slices.ContainsFunc(reps, func(leaf reply) bool {
				return leaf.parent == r.parent && leaf.handle == r.handle
			}) {
				return qdiscError("delete", q, unix.ENOENT)
			}
			r.kind, r.handle = standInKind, (firstStandIn+(r.parent&0xffff-1))<<16
			return qdiscError("delete", q, c.send(r, nil, unix.RTM_NEWQDISC, netlink.Create|netlink.Replace))
		}
	}
	return qdiscError("delete", q, c.send(r, err, unix.RTM_DELQDISC, 0))
}

func qdiscError(verb string, q device.Qdisc, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s qdisc %s %s at %s of %s: %w", verb, q.Type, q.Handle, q.Parent, q.Dev, err)
}

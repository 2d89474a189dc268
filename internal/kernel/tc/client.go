// SPDX-License-Identifier: Apache-2.0

// Package tc is a thin typed client of the kernel's traffic control by rtnetlink: qdiscs, HTB
// classes, cls_bpf filters, and flower filters in a card. It reads and writes device.Qdisc,
// device.Class and device.Flower objects; package internal/kernel/bpf attaches its programs
// through it. It chooses no handle and writes no kind that it cannot read back exactly. It
// never replaces a qdisc that a user made, only the kernel's own default (handle 0).
package tc

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/lane/device"
)

// A Client talks to the network namespace of the thread that opened it. It is not safe for
// concurrent use.
type Client struct {
	nl   *netlink.Conn
	sock int // for SIOCGIFINDEX
	// placed are the flower filters of each device at the last dump, by their match and
	// preference. With placed, the client deletes a filter without a dump.
	placed map[string]map[place]placedFlower
}

// Open connects.
func Open() (*Client, error) {
	nl, err := nlsock.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		nl.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	return &Client{nl: nl, sock: sock, placed: map[string]map[place]placedFlower{}}, nil
}

// Close disconnects.
func (c *Client) Close() error {
	return errors.Join(c.nl.Close(), unix.Close(c.sock))
}

// Index returns a device's interface index, or ENODEV if there is no such device. It asks the
// kernel each time, because a device may vanish and another may take its name.
func (c *Client) Index(dev string) (int, error) {
	req, err := unix.NewIfreq(dev)
	if err != nil {
		return 0, fmt.Errorf("device name %q: %w", dev, err)
	}
	if err := unix.IoctlIfreq(c.sock, unix.SIOCGIFINDEX, req); err != nil {
		return 0, fmt.Errorf("%s: %w", dev, err)
	}
	return int(req.Uint32()), nil
}

// Read returns the present value of the object with o's identity, or nil if there is none.
func (c *Client) Read(o device.Object) (device.Object, error) {
	switch o := o.(type) {
	case device.Qdisc:
		q, err := c.qdisc(o.Dev, o.Parent)
		if q == nil || err != nil {
			return nil, err
		}
		return *q, nil
	case device.Class:
		cl, err := c.class(o.Dev, o.ID)
		if cl == nil || err != nil {
			return nil, err
		}
		return *cl, nil
	case device.Flower:
		p, ok, err := c.findFlower(o)
		if !ok || err != nil {
			return nil, err
		}
		return p.Flower, nil
	}
	return nil, fmt.Errorf("object kind %q is not traffic control's", o.Kind())
}

// ReadMany returns what Read returns, for each object. It makes one dump of all classes and one
// of all filters of a device.
func (c *Client) ReadMany(objects []device.Object) ([]device.Object, error) {
	out := make([]device.Object, len(objects))
	dumped := map[string]map[string]device.Object{} // by kind and device, then by key
	for i, o := range objects {
		var dev string
		switch o := o.(type) {
		case device.Class:
			dev = o.Dev
		case device.Flower:
			dev = o.Dev
		default:
			var err error
			if out[i], err = c.Read(o); err != nil {
				return nil, err
			}
			continue
		}
		of := o.Kind() + "/" + dev
		if dumped[of] == nil {
			all, err := c.dump(o, dev)
			if err != nil {
				return nil, err
			}
			dumped[of] = map[string]device.Object{}
			for _, a := range all {
				dumped[of][a.Key()] = a // if several have the key, niclane's own comes last
			}
		}
		if a, ok := dumped[of][o.Key()]; ok {
			out[i] = a
		}
	}
	return out, nil
}

// dump returns all objects of o's kind on a device.
func (c *Client) dump(o device.Object, dev string) (all []device.Object, err error) {
	if _, ok := o.(device.Flower); ok {
		flowers, err := c.Flowers(dev)
		for _, f := range flowers {
			all = append(all, f)
		}
		return all, err
	}
	classes, err := c.Classes(dev)
	for _, cl := range classes {
		all = append(all, cl)
	}
	return all, err
}

// Write changes an object from old to next; nil means absent.
func (c *Client) Write(old, next device.Object) error {
	o := cmp.Or(next, old)
	switch o.(type) {
	case device.Qdisc:
		return write(old, next, c.addQdisc, c.changeQdisc, c.deleteQdisc)
	case device.Flower:
		return write(old, next, c.addFlower, c.changeFlower, c.deleteFlower)
	case device.Class:
		return write(old, next, c.addClass, c.changeClass, c.deleteClass)
	}
	return fmt.Errorf("object kind %q is not traffic control's", o.Kind())
}

func write[T device.Object](old, next device.Object, add func(T) error, change func(T, T) error,
	remove func(T) error) error {
	was, hadOld := old.(T)
	is, hasNew := next.(T)
	switch {
	case hadOld && hasNew:
		return change(was, is)
	case hasNew:
		return add(is)
	default:
		return remove(was)
	}
}

// A request is a tcmsg with its attributes.
type request struct {
	typ     uint16
	flags   netlink.HeaderFlags // besides Request
	dump    bool                // request a dump, not an acknowledgement
	ifindex int
	handle  uint32
	parent  uint32
	info    uint32
	kind    string
	options func(*netlink.AttributeEncoder)
	raw     []byte // options that are not attributes
}

const sizeofTcmsg = 20

func (r request) message() (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	if r.kind != "" {
		ae.String(unix.TCA_KIND, r.kind)
	}
	if r.options != nil {
		ae.Nested(unix.TCA_OPTIONS, func(ae *netlink.AttributeEncoder) error {
			r.options(ae)
			return nil
		})
	}
	if r.raw != nil {
		ae.Bytes(unix.TCA_OPTIONS, r.raw)
	}
	attrs, err := ae.Encode()
	if err != nil {
		return netlink.Message{}, err
	}
	// The kernel replies to a request for one object only if the request has the flag Echo
	// (rtnetlink_send). For a built-in qdisc it never replies (tc_qdisc_dump_ignore). So the
	// request also has the flag Acknowledge: otherwise no answer would come.
	flags := netlink.Request | netlink.Acknowledge | r.flags
	if r.dump {
		flags = netlink.Request | netlink.Dump
	}
	b := make([]byte, sizeofTcmsg, sizeofTcmsg+len(attrs))
	binary.NativeEndian.PutUint32(b[4:], uint32(r.ifindex))
	binary.NativeEndian.PutUint32(b[8:], r.handle)
	binary.NativeEndian.PutUint32(b[12:], r.parent)
	binary.NativeEndian.PutUint32(b[16:], r.info)
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(r.typ), Flags: flags},
		Data:   append(b, attrs...),
	}, nil
}

// do sends a request and returns the traffic control replies.
func (c *Client) do(r request) ([]reply, error) {
	m, err := r.message()
	if err != nil {
		return nil, err
	}
	msgs, err := c.exchange(m, r.dump)
	if err != nil {
		return nil, extack.Error(err)
	}
	var out []reply
	for _, m := range msgs {
		rep, err := decode(m.Data)
		if err != nil {
			return nil, err
		}
		if rep.kind != "" && rep.ifindex == r.ifindex {
			out = append(out, rep)
		}
	}
	return out, nil
}

// send sends a request that changes something. err is the error of making the request: if it is
// not nil, send returns it and sends nothing.
func (c *Client) send(r request, err error, typ uint16, flags netlink.HeaderFlags) error {
	if err != nil {
		return err
	}
	r.typ, r.flags = typ, flags
	_, err = c.do(r)
	return err
}

// list returns all objects of a kind on a device, in the kernel's order.
func (c *Client) list(dev, what string, r request) (reps []reply, err error) {
	if r.ifindex, err = c.Index(dev); err != nil {
		return nil, err
	}
	r.dump = true
	if reps, err = c.do(r); err != nil {
		return nil, fmt.Errorf("%s: get %s: %w", dev, what, err)
	}
	return reps, nil
}

// exchange sends a message and receives until the end of the dump or the acknowledgement, which
// follows the reply in a separate datagram.
func (c *Client) exchange(m netlink.Message, dump bool) ([]netlink.Message, error) {
	if dump {
		return c.nl.Execute(m)
	}
	sent, err := c.nl.Send(m)
	if err != nil {
		return nil, err
	}
	var out []netlink.Message
	for {
		msgs, err := c.nl.Receive()
		if err != nil {
			return nil, err
		}
		for _, m := range msgs {
			switch {
			case m.Header.Sequence != sent.Header.Sequence:
			case m.Header.Type == netlink.Error:
				return out, nil
			default:
				out = append(out, m)
			}
		}
	}
}

// A reply is a tcmsg from the kernel.
type reply struct {
	ifindex              int
	handle, parent, info uint32
	kind                 string
	options              []byte
	stats                []byte // TCA_STATS2
	// Shared filter blocks of an ingress or clsact qdisc, 0 for none.
	ingressBlock, egressBlock uint32
}

func decode(b []byte) (reply, error) {
	if len(b) < sizeofTcmsg {
		return reply{}, fmt.Errorf("decode tc message: %d bytes", len(b))
	}
	r := reply{
		ifindex: int(int32(binary.NativeEndian.Uint32(b[4:]))),
		handle:  binary.NativeEndian.Uint32(b[8:]),
		parent:  binary.NativeEndian.Uint32(b[12:]),
		info:    binary.NativeEndian.Uint32(b[16:]),
	}
	ad, err := netlink.NewAttributeDecoder(b[sizeofTcmsg:])
	if err != nil {
		return r, fmt.Errorf("decode tc message: %w", err)
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.TCA_KIND:
			r.kind = ad.String()
		case unix.TCA_OPTIONS:
			r.options = ad.Bytes()
		case unix.TCA_STATS2:
			r.stats = ad.Bytes()
		case unix.TCA_INGRESS_BLOCK:
			r.ingressBlock = ad.Uint32()
		case unix.TCA_EGRESS_BLOCK:
			r.egressBlock = ad.Uint32()
		}
	}
	if err := ad.Err(); err != nil {
		return r, fmt.Errorf("decode tc message: %w", err)
	}
	return r, nil
}

// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// HTB's attributes and struct tc_htb_opt (linux/pkt_sched.h).
const (
	attrHTBParms   = 1
	attrHTBRate64  = 6
	attrHTBCeil64  = 7
	attrHTBOffload = 9 // a flag
	sizeofHTBOpt   = 44

	offRate    = 0  // struct tc_ratespec
	offCeil    = 12 // struct tc_ratespec
	offBuffer  = 24 // ticks
	offCBuffer = 28 // ticks
	offQuantum = 32
	offPrio    = 40

	// Offsets within struct tc_ratespec.
	offLinklayer = 1
	offOverhead  = 2 // u16
	offRate32    = 8

	// linklayerEthernet makes the kernel compute transmit times itself. Otherwise the kernel
	// needs a table in the request (psched_ratecfg_precompute).
	linklayerEthernet = 1
)

// class returns a class, or nil if there is none. It searches in a dump of all the device's
// classes, for the reason that the comment of qdisc gives.
func (c *Client) class(dev, id string) (*device.Class, error) {
	handle, err := ParseHandle(id)
	if err != nil {
		return nil, err
	}
	reps, err := c.classes(dev)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(reps, func(r reply) bool { return r.handle == handle && r.kind == "htb" })
	if i < 0 {
		return nil, nil
	}
	cl, err := classOf(dev, reps[i])
	return &cl, err
}

// Classes returns a device's HTB classes in the kernel's order.
func (c *Client) Classes(dev string) ([]device.Class, error) {
	reps, err := c.classes(dev)
	if err != nil {
		return nil, err
	}
	var out []device.Class
	for _, r := range reps {
		if r.kind != "htb" {
			continue
		}
		cl, err := classOf(dev, r)
		if err != nil {
			return nil, err
		}
		out = append(out, cl)
	}
	return out, nil
}

func (c *Client) classes(dev string) ([]reply, error) {
	return c.list(dev, "classes", request{typ: unix.RTM_GETTCLASS})
}

func classOf(dev string, r reply) (device.Class, error) {
	cl := device.Class{Dev: dev, ID: FormatHandle(r.handle), Parent: FormatHandle(r.parent)}
	if r.parent == handleRoot {
		// The kernel shows root as the parent of a class directly under the qdisc.
		cl.Parent = FormatHandle(r.handle &^ 0xffff)
	}
	ad, err := netlink.NewAttributeDecoder(r.options)
	if err != nil {
		return cl, fmt.Errorf("%s: options of class %s: %w", dev, cl.ID, err)
	}
	var opt []byte
	var rate64, ceil64 uint64
	for ad.Next() {
		switch ad.Type() {
		case attrHTBParms:
			opt = ad.Bytes()
		case attrHTBRate64:
			rate64 = ad.Uint64()
		case attrHTBCeil64:
			ceil64 = ad.Uint64()
		case attrHTBOffload:
			cl.Offload = true
		}
	}
	if err := ad.Err(); err != nil {
		return cl, fmt.Errorf("%s: options of class %s: %w", dev, cl.ID, err)
	}
	if len(opt) < sizeofHTBOpt {
		return cl, fmt.Errorf("%s: options of class %s: %d bytes: %w", dev, cl.ID, len(opt), unix.EBADMSG)
	}
	u32 := func(off int) uint32 { return binary.NativeEndian.Uint32(opt[off:]) }
	rate, ceil := uint64(u32(offRate+offRate32)), uint64(u32(offCeil+offRate32))
	if rate64 != 0 {
		rate = rate64
	}
	if ceil64 != 0 {
		ceil = ceil64
	}
	cl.Rate, cl.Ceil = rate*8, ceil*8
	cl.Burst, cl.CBurst = device.BurstBytes(rate, u32(offBuffer)), device.BurstBytes(ceil, u32(offCBuffer))
	cl.Quantum, cl.Prio = u32(offQuantum), u32(offPrio)
	cl.Overhead = binary.NativeEndian.Uint16(opt[offRate+offOverhead:])
	if cl.Offload {
		cl.Quantum = 0 // the kernel computed it from the class's first rate; no user chose it
	}
	return cl, nil
}

func (c *Client) classRequest(cl device.Class) (request, error) {
	index, err := c.Index(cl.Dev)
	if err != nil {
		return request{}, err
	}
	handle, err := ParseHandle(cl.ID)
	if err != nil {
		return request{}, err
	}
	parent, err := ParseHandle(cl.Parent)
	if err != nil {
		return request{}, err
	}
	rate, ceil := cl.Rate/8, cl.Ceil/8
	if cl.Offload && (cl.Quantum != 0 || cl.Prio != 0) {
		return request{}, fmt.Errorf("%w: quantum %d, prio %d of a class that the card has (it takes neither)",
			unix.EINVAL, cl.Quantum, cl.Prio)
	}
	if rate == 0 || ceil == 0 || cl.Quantum == 0 && !cl.Offload || cl.Prio > 7 {
		return request{}, fmt.Errorf("%w: rate %d and ceiling %d bit/s, quantum %d (at least 8, 8, 1), prio %d (at "+
			"most 7)",
			unix.EINVAL, cl.Rate, cl.Ceil, cl.Quantum, cl.Prio)
	}
	opt := make([]byte, sizeofHTBOpt)
	put := func(off int, v uint32) { binary.NativeEndian.PutUint32(opt[off:], v) }
	for _, spec := range [][]byte{opt[offRate:], opt[offCeil:]} {
		spec[offLinklayer] = linklayerEthernet
		binary.NativeEndian.PutUint16(spec[offOverhead:], cl.Overhead)
	}
	put(offRate+offRate32, uint32(min(rate, math.MaxUint32)))
	put(offCeil+offRate32, uint32(min(ceil, math.MaxUint32)))
	put(offBuffer, device.BurstTicks(rate, cl.Burst))
	put(offCBuffer, device.BurstTicks(ceil, cl.CBurst))
	put(offQuantum, cl.Quantum)
	put(offPrio, cl.Prio)
	return request{
		ifindex: index, parent: parent, handle: handle, kind: "htb",
		options: func(ae *netlink.AttributeEncoder) {
			if rate > math.MaxUint32 {
				ae.Uint64(attrHTBRate64, rate)
			}
			if ceil > math.MaxUint32 {
				ae.Uint64(attrHTBCeil64, ceil)
			}
			ae.Bytes(attrHTBParms, opt)
		},
	}, nil
}

func (c *Client) addClass(cl device.Class) error {
	r, err := c.classRequest(cl)
	if err == nil && r.parent&0xffff != 0 {
		// HTB treats a parent that does not exist as the root.
		var parent *device.Class
		parent, err = c.class(cl.Dev, cl.Parent)
		if err == nil && parent == nil {
			err = fmt.Errorf("%w: no parent class %s", unix.ENOENT, cl.Parent)
		}
	}
	return classError("add", cl, c.send(r, err, unix.RTM_NEWTCLASS, netlink.Create|netlink.Excl))
}

func (c *Client) changeClass(old, cl device.Class) error {
	if old.Parent != cl.Parent {
		return classError("change", cl, fmt.Errorf("%w: its parent is %s and cannot be changed to %s", unix.EINVAL,
			old.Parent, cl.Parent))
	}
	r, err := c.classRequest(cl)
	return classError("change", cl, c.send(r, err, unix.RTM_NEWTCLASS, 0))
}

func (c *Client) deleteClass(cl device.Class) error {
	index, err := c.Index(cl.Dev)
	if err != nil {
		return classError("delete", cl, err)
	}
	handle, err := ParseHandle(cl.ID)
	if err != nil {
		return classError("delete", cl, err)
	}
	_, err = c.do(request{typ: unix.RTM_DELTCLASS, ifindex: index, handle: handle})
	return classError("delete", cl, err)
}

func classError(verb string, cl device.Class, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s class %s of %s: %w", verb, cl.ID, cl.Dev, err)
}

// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// cls_bpf's attributes (linux/pkt_cls.h).
const (
	attrBPFFD    = 6
	attrBPFName  = 7
	attrBPFFlags = 8
	attrBPFID    = 11

	bpfFlagActDirect = 1 // TCA_BPF_FLAG_ACT_DIRECT
)

// filterInfo returns tcm_info: the preference and, in network byte order, the protocol.
// niclane's filters see all protocols.
func filterInfo(pref uint16) uint32 {
	return uint32(pref)<<16 | uint32(bits.ReverseBytes16(unix.ETH_P_ALL))
}

// Filter returns the filter with f's device, parent, preference and handle, or nil if there is
// none. It fills in Type, Name and ProgramID, not Program.
func (c *Client) Filter(f device.Filter) (*device.FilterState, error) {
	r, err := c.filterRequest(f)
	if err != nil {
		return nil, err
	}
	// The request has no kind: with a kind, the kernel would refuse to show a filter of
	// another kind.
	r.typ, r.flags, r.kind = unix.RTM_GETTFILTER, netlink.Echo, ""
	reps, err := c.do(r)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case errors.Is(err, unix.EINVAL):
		// There are three causes: there is no clsact (tcf_qdisc_find); it has no filter yet
		// (tc_get_tfilter); or the kernel cannot read the request. In the first two cases, the
		// filter does not exist, and a dump shows that.
		all, derr := c.Filters(f.Dev)
		if derr == nil && !slices.ContainsFunc(all,
			func(s device.FilterState) bool { return s.Filter.Key() == f.Key() }) {
			return nil, nil
		}
		return nil, filterError("get", f, errors.Join(err, derr))
	case err != nil:
		return nil, filterError("get", f, err)
	case len(reps) != 1:
		return nil, filterError("get", f, fmt.Errorf("%d replies instead of one", len(reps)))
	}
	s, err := filterOf(f.Dev, f.Parent, reps[0])
	return &s, err
}

// Filters returns all filters on clsact, niclane's and foreign, except those that Flowers
// returns. Ingress comes first, then preference and handle. Without clsact there are none.
func (c *Client) Filters(dev string) ([]device.FilterState, error) {
	q, err := c.qdisc(dev, "clsact")
	if err != nil || q == nil {
		return nil, err
	}
	var out []device.FilterState
	for _, hook := range []string{"ingress", "egress"} {
		parent, err := parseHook(hook)
		if err != nil {
			return nil, err
		}
		reps, err := c.filters(dev, parent)
		if err != nil {
			return nil, err
		}
		for _, r := range reps {
			if _, is := flowerOf(dev, r); is && parent == clsactIngress {
				continue
			}
			f, err := filterOf(dev, hook, r)
			if err != nil {
				return nil, err
			}
			out = append(out, f)
		}
	}
	return out, nil
}

// filters dumps the filters of a qdisc or class.
func (c *Client) filters(dev string, parent uint32) ([]reply, error) {
	reps, err := c.list(dev, "filters of "+FormatHandle(parent), request{typ: unix.RTM_GETTFILTER, parent: parent})
	if err != nil {
		return nil, err
	}
	// Before the filters of a preference, the kernel lists the preference itself, with handle
	// 0. It also lists u32 hash tables. They stay in the result, because a user made them.
	return slices.DeleteFunc(reps, func(r reply) bool { return r.handle == 0 }), nil
}

func filterOf(dev, hook string, r reply) (device.FilterState, error) {
	f := device.FilterState{
		Filter: device.Filter{Dev: dev, Parent: hook, Pref: uint16(r.info >> 16), Handle: r.handle},
		Type:   r.kind,
	}
	if r.kind != "bpf" {
		return f, nil
	}
	ad, err := netlink.NewAttributeDecoder(r.options)
	if err != nil {
		return f, filterError("get", f.Filter, err)
	}
	for ad.Next() {
		switch ad.Type() {
		case attrBPFName:
			f.Name = ad.String()
		case attrBPFID:
			f.ProgramID = ad.Uint32()
		}
	}
	if err := ad.Err(); err != nil {
		return f, filterError("get", f.Filter, err)
	}
	return f, nil
}

func (c *Client) filterRequest(f device.Filter) (request, error) {
	index, err := c.Index(f.Dev)
	if err != nil {
		return request{}, err
	}
	parent, err := parseHook(f.Parent)
	if err != nil {
		return request{}, err
	}
	if f.Pref == 0 || f.Handle == 0 {
		// For the kernel, zero means all filters.
		return request{}, filterError("name", f, fmt.Errorf("%w: preference and handle must not be 0", unix.EINVAL))
	}
	return request{ifindex: index, parent: parent, handle: f.Handle, info: filterInfo(f.Pref), kind: "bpf"}, nil
}

// AddBPF attaches a loaded program as f, with the name f.Program.
func (c *Client) AddBPF(f device.Filter, programFD int) error {
	r, err := c.filterRequest(f)
	r.options = func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrBPFFD, uint32(programFD))
		ae.String(attrBPFName, f.Program)
		ae.Uint32(attrBPFFlags, bpfFlagActDirect)
	}
	return filterError("add", f, c.send(r, err, unix.RTM_NEWTFILTER, netlink.Create|netlink.Excl))
}

// DeleteBPF detaches f.
func (c *Client) DeleteBPF(f device.Filter) error {
	r, err := c.filterRequest(f)
	return filterError("delete", f, c.send(r, err, unix.RTM_DELTFILTER, 0))
}

func filterError(verb string, f device.Filter, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s filter pref %d handle %#x at %s of %s: %w", verb, f.Pref, f.Handle, f.Parent, f.Dev, err)
}

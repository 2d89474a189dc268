// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// fq's attributes, each of 32 bits (linux/pkt_sched.h: TCA_FQ_*).
const (
	attrFQLimit     = 1
	attrFQFlowLimit = 2
)

// fqLimits are settings of fq by which it drops, delays or marks packets. niclane leaves them at the
// kernel's defaults (net/sched/sch_fq.c: fq_init).
var fqLimits = []struct {
	attr        uint16
	name        string // of tc-fq(8)
	unit        string
	defaultTo   uint32
	bytesToBits uint64
}{
	{7, "maxrate", "bit", math.MaxUint32, 8},
	{12, "ce_threshold", "us", math.MaxUint32, 1},
	{14, "horizon", "us", 10_000_000, 1},
}

func encodeFQ(q device.Qdisc) (func(*netlink.AttributeEncoder), error) {
	if q.FQ != "" {
		return nil, fmt.Errorf("%w: fq %s: niclane makes it without", unix.EINVAL, q.FQ)
	}
	return func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrFQLimit, q.Limit)
		ae.Uint32(attrFQFlowLimit, q.Limit)
		for _, l := range fqLimits {
			ae.Uint32(l.attr, l.defaultTo)
		}
	}, nil
}

// decodeFQ reads the smaller one of the two limits of packets, and the fqLimits that are not the default.
func decodeFQ(q *device.Qdisc, options []byte) error {
	ad, err := netlink.NewAttributeDecoder(options)
	if err != nil {
		return err
	}
	var limit, flow uint32
	var set []string
	for ad.Next() {
		switch ad.Type() {
		case attrFQLimit:
			limit = ad.Uint32()
		case attrFQFlowLimit:
			flow = ad.Uint32()
		}
		for _, l := range fqLimits {
			if ad.Type() == l.attr && ad.Uint32() != l.defaultTo {
				set = append(set, fmt.Sprintf("%s %d%s", l.name, uint64(ad.Uint32())*l.bytesToBits, l.unit))
			}
		}
	}
	if err := ad.Err(); err != nil {
		return errors.Join(unix.EBADMSG, err)
	}
	q.Limit, q.FQ = min(limit, flow), strings.Join(set, " ")
	return nil
}

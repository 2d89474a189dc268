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
	attrFQLimit      = 1
	attrFQFlowLimit  = 2
	attrFQRateEnable = 5
)

// fqPacing is the setting of a fq that paces TCP by its round-trip time, which is the kernel's default. niclane
// makes fq without: a lane's packets leave when the classifier says. With it, the first answer of a connection
// took 50 ms instead of 0.3 ms at 100 Gbit/s: the server had TCP_DEFER_ACCEPT, so the first round-trip time was
// as long as the client waited before its request. TCP that paces itself (BBR, SO_MAX_PACING_RATE) does so
// without fq too (net/ipv4/tcp_output.c: tcp_needs_internal_pacing).
const fqPacing = "pacing"

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
	pacing := uint32(0)
	if q.FQ == fqPacing { // of an earlier version of niclane, for rollback
		pacing = 1
	} else if q.FQ != "" {
		return nil, fmt.Errorf("%w: fq %s: niclane makes it without", unix.EINVAL, q.FQ)
	}
	return func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrFQLimit, q.Limit)
		ae.Uint32(attrFQFlowLimit, q.Limit)
		ae.Uint32(attrFQRateEnable, pacing)
		for _, l := range fqLimits {
			ae.Uint32(l.attr, l.defaultTo)
		}
	}, nil
}

// decodeFQ reads the smaller one of the two limits of packets, fqPacing, and the fqLimits that are not the default.
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
		case attrFQRateEnable:
			if ad.Uint32() != 0 {
				set = append(set, fqPacing)
			}
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

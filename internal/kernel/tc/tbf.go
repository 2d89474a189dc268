// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// TBF's attributes and struct tc_tbf_qopt (linux/pkt_sched.h).
const (
	attrTBFParms  = 1
	attrTBFRate64 = 4
	sizeofTBFOpt  = 36

	offTBFLimit  = 24 // bytes; after two struct tc_ratespec
	offTBFBuffer = 28 // ticks
)

func encodeTBF(q device.Qdisc) (func(*netlink.AttributeEncoder), error) {
	rate := q.Rate / 8
	if rate == 0 || q.Burst == 0 || q.Limit == 0 {
		return nil, fmt.Errorf("%w: rate %d bit/s, burst %d and limit %d bytes: at least 8, 1 and 1", unix.EINVAL,
			q.Rate, q.Burst, q.Limit)
	}
	opt := make([]byte, sizeofTBFOpt)
	opt[offRate+offLinklayer] = linklayerEthernet
	binary.NativeEndian.PutUint32(opt[offRate+offRate32:], uint32(min(rate, math.MaxUint32)))
	binary.NativeEndian.PutUint32(opt[offTBFLimit:], q.Limit)
	binary.NativeEndian.PutUint32(opt[offTBFBuffer:], device.BurstTicks(rate, q.Burst))
	return func(ae *netlink.AttributeEncoder) {
		if rate > math.MaxUint32 {
			ae.Uint64(attrTBFRate64, rate)
		}
		ae.Bytes(attrTBFParms, opt)
	}, nil
}

func decodeTBF(q *device.Qdisc, options []byte) error {
	ad, err := netlink.NewAttributeDecoder(options)
	if err != nil {
		return err
	}
	var opt []byte
	var rate uint64
	for ad.Next() {
		switch ad.Type() {
		case attrTBFParms:
			opt = ad.Bytes()
		case attrTBFRate64:
			rate = ad.Uint64()
		}
	}
	if err := ad.Err(); err != nil || len(opt) < sizeofTBFOpt {
		return fmt.Errorf("%d bytes: %w", len(opt), errors.Join(unix.EBADMSG, err))
	}
	if rate == 0 {
		rate = uint64(binary.NativeEndian.Uint32(opt[offRate+offRate32:]))
	}
	q.Rate = rate * 8
	q.Limit = binary.NativeEndian.Uint32(opt[offTBFLimit:])
	q.Burst = device.BurstBytes(rate, binary.NativeEndian.Uint32(opt[offTBFBuffer:]))
	return nil
}

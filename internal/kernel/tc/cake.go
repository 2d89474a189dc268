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

// Cake's attributes, each of 32 bits except the first (linux/pkt_sched.h: TCA_CAKE_*).
const (
	attrCakeRate64   = 2 // bytes per second, 0 for unlimited
	attrCakeDiffserv = 3
	attrCakeFlowMode = 5
	attrCakeSplitGSO = 17
)

// cakeDiffserv and cakeFlows are tc-cake(8)'s names of values, in the order of enum
// CAKE_DIFFSERV_* and of the flow modes in net/sched/sch_cake.c.
var (
	cakeDiffserv = []string{"diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence"}
	cakeFlows    = []string{"flowblind", "srchost", "dsthost", "hosts", "flows", "dual-srchost", "dual-dsthost",
		"triple-isolate"}
)

const cakeNoSplit = "no-split-gso"

// encodeCake encodes the rate and the three words of q.Cake, as in device.CakeByHost.
func encodeCake(q device.Qdisc) (func(*netlink.AttributeEncoder), error) {
	words := strings.Fields(q.Cake)
	if len(words) != 3 || words[2] != cakeNoSplit || !slices.Contains(cakeDiffserv, words[0]) ||
		!slices.Contains(cakeFlows, words[1]) {
		return nil, fmt.Errorf("%w: cake %q: want a diffserv mode, a flow mode and %s", unix.EINVAL, q.Cake,
			cakeNoSplit)
	}
	return func(ae *netlink.AttributeEncoder) {
		ae.Uint64(attrCakeRate64, q.Rate/8)
		ae.Uint32(attrCakeDiffserv, uint32(slices.Index(cakeDiffserv, words[0])))
		ae.Uint32(attrCakeFlowMode, uint32(slices.Index(cakeFlows, words[1])))
		ae.Uint32(attrCakeSplitGSO, 0)
	}, nil
}

// decodeCake reads the rate and the modes that decide the order of packets.
func decodeCake(q *device.Qdisc, options []byte) error {
	ad, err := netlink.NewAttributeDecoder(options)
	if err != nil {
		return err
	}
	name := func(names []string) string {
		x := ad.Uint32()
		if int64(x) < int64(len(names)) {
			return names[x]
		}
		return fmt.Sprint(x) // a mode newer than these
	}
	var diffserv, flows, split string
	for ad.Next() {
		switch ad.Type() {
		case attrCakeRate64:
			if b := ad.Bytes(); len(b) == 8 {
				q.Rate = binary.NativeEndian.Uint64(b) * 8
			}
		case attrCakeDiffserv:
			diffserv = name(cakeDiffserv)
		case attrCakeFlowMode:
			flows = name(cakeFlows)
		case attrCakeSplitGSO:
			if split = cakeNoSplit; ad.Uint32() != 0 {
				split = "split-gso"
			}
		}
	}
	if err := ad.Err(); err != nil || diffserv == "" || flows == "" || split == "" {
		return errors.Join(unix.EBADMSG, err)
	}
	q.Cake = diffserv + " " + flows + " " + split
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers from linux/pkt_cls.h, pkt_sched.h, tc_act/tc_skbedit.h.
const (
	parentIngress = 0xfffffff2
	parentEgress  = 0xfffffff3
	minPriority   = 0xffe0
	skipSW        = 2
	offsetTcmsg   = unix.NLMSG_HDRLEN + 20
	offsetMqprio  = 84 // the attributes begin after struct tc_mqprio_qopt
)

// traffic decodes the requests in a message of rtnetlink; it returns none if the message only
// reads. It leaves out preferences and handles, which the sender or the kernel chooses.
func traffic(b []byte) ([]string, error) {
	if len(b) < offsetTcmsg {
		return nil, nil
	}
	typ := binary.NativeEndian.Uint16(b[4:])
	parent := binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN+12:])
	switch typ {
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER:
	default:
		return nil, nil
	}
	kind, options := "", []byte(nil)
	ad, err := netlink.NewAttributeDecoder(b[offsetTcmsg:])
	if err != nil {
		return nil, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.TCA_KIND:
			kind = ad.String()
		case unix.TCA_OPTIONS:
			options = ad.Bytes()
		}
	}
	if err := ad.Err(); err != nil {
		return nil, err
	}
	hook := map[uint32]string{parentIngress: "ingress", parentEgress: "egress"}[parent]
	switch {
	case typ == unix.RTM_DELQDISC:
		return []string{"delete root qdisc " + kind}, nil
	case typ == unix.RTM_DELTFILTER && kind == "":
		return []string{"delete all filters of " + hook}, nil
	case typ == unix.RTM_NEWQDISC && kind == "mqprio":
		return mqprio(options)
	case typ == unix.RTM_NEWQDISC:
		return []string{"qdisc " + kind}, nil
	case typ == unix.RTM_NEWTFILTER && kind == "flower":
		line, err := flower(options)
		return []string{"filter " + hook + " flower " + line}, err
	}
	return []string{fmt.Sprintf("message %d of kind %q", typ, kind)}, nil
}

func mqprio(b []byte) ([]string, error) {
	if len(b) < offsetMqprio {
		return nil, fmt.Errorf("mqprio: %d bytes", len(b))
	}
	line := "qdisc mqprio queues"
	for i := range int(b[0]) {
		line += fmt.Sprintf(" %d@%d", binary.NativeEndian.Uint16(b[18+2*i:]), binary.NativeEndian.Uint16(b[50+2*i:]))
	}
	line += fmt.Sprintf(" hw %d", b[17])
	ad, err := netlink.NewAttributeDecoder(b[offsetMqprio:])
	if err != nil {
		return nil, err
	}
	for ad.Next() {
		switch ad.Type() {
		case 1:
			line += " mode " + []string{"dcb", "channel"}[ad.Uint16()&1]
		case 2:
			line += " shaper " + []string{"dcb", "bw_rlimit"}[ad.Uint16()&1]
		default:
			line += fmt.Sprintf(" attribute %d %x", ad.Type(), ad.Bytes())
		}
	}
	out := []string{line}
	for priority, class := range b[1:17] {
		if class != 0 {
			out = append(out, fmt.Sprintf("priority %d in traffic class %d", priority, class))
		}
	}
	return out, ad.Err()
}

func flower(b []byte) (string, error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return "", err
	}
	be := func() uint16 { return binary.BigEndian.Uint16(ad.Bytes()) }
	var words [6]string // protocol, addresses, ports, flags, class, action
	ports := map[uint16]string{18: "src_port", 19: "dst_port", 20: "src_port", 21: "dst_port"}
	addrs := map[uint16]string{10: "src_ip", 12: "dst_ip", 14: "src_ip", 16: "dst_ip"}
	var addr netip.Addr
	name := ""
	for ad.Next() {
		switch t := ad.Type(); t {
		case 1:
			words[4] = fmt.Sprintf(" hw_tc %d", ad.Uint32()&0xffff-minPriority)
		case 3:
			words[5], err = skbedit(ad.Bytes())
			if err != nil {
				return "", err
			}
		case 8:
			words[0] = map[uint16]string{unix.ETH_P_IP: "ip", unix.ETH_P_IPV6: "ipv6"}[be()] + words[0]
		case 9:
			words[0] += map[uint8]string{unix.IPPROTO_TCP: " tcp", unix.IPPROTO_UDP: " udp"}[ad.Uint8()]
		case 10, 12, 14, 16:
			addr, _ = netip.AddrFromSlice(ad.Bytes())
			name = addrs[t]
		case 11, 13, 15, 17:
			n := 0
			for _, m := range ad.Bytes() {
				n += bits.OnesCount8(m)
			}
			words[1] += fmt.Sprintf(" %s %s/%d", name, addr, n)
		case 18, 19, 20, 21:
			words[2] += fmt.Sprintf(" %s %d", ports[t], be())
		case 22:
			if f := ad.Uint32(); f == skipSW {
				words[3] = " skip_sw"
			} else if f != 0 {
				words[3] = fmt.Sprintf(" flags %d", f)
			}
		case 35, 36, 37, 38: // masks of the ports, with all bits set: the same as no mask
			if be() != 0xffff {
				return "", fmt.Errorf("flower: mask %x", ad.Bytes())
			}
		default:
			words[5] += fmt.Sprintf(" key %d %x", t, ad.Bytes())
		}
	}
	return strings.Join(words[:], ""), ad.Err()
}

// skbedit decodes a list of actions that contains a single skbedit, as adqsetup sends it.
func skbedit(b []byte) (line string, err error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return "", err
	}
	for ad.Next() {
		ad.Nested(func(ad *netlink.AttributeDecoder) error {
			for ad.Next() {
				switch ad.Type() {
				case 1:
					line += " action " + ad.String()
				case 2:
					ad.Nested(func(ad *netlink.AttributeDecoder) error {
						for ad.Next() {
							if ad.Type() == 3 {
								line += fmt.Sprintf(" priority %d", ad.Uint32())
							}
						}
						return ad.Err()
					})
				}
			}
			return ad.Err()
		})
	}
	return line, ad.Err()
}

// Names for the bits of features and private flags. record.py gives adqsetup the same names.
var (
	features = []string{"hw-tc-offload", "rx-ntuple-filter"}
	flags    = []string{"channel-inline-flow-director", "channel-pkt-inspect-optimize", "channel-pkt-clean-bp-stop",
		"channel-pkt-clean-bp-stop-cfg"}
)

// ioctl decodes a request of SIOCETHTOOL (linux/ethtool.h) and calls set for each setting.
func ioctl(b []byte, set func(of, value string)) {
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	onOff := map[bool]string{true: "on", false: "off"}
	switch u32(0) {
	case unix.ETHTOOL_SFEATURES:
		for i, name := range features {
			if u32(8)>>i&1 != 0 {
				set("feature "+name, onOff[u32(12)>>i&1 != 0])
			}
		}
	case unix.ETHTOOL_SPFLAGS:
		for i, name := range flags {
			set("private flag "+name, onOff[u32(4)>>i&1 != 0])
		}
	case unix.ETHTOOL_SCOALESCE:
		set("moderation of the device", "set")
	case unix.ETHTOOL_SRINGPARAM:
		set("rings", fmt.Sprintf("rx %d tx %d", u32(4+4*4), u32(4+4*7)))
	case unix.ETHTOOL_SRXCLSRLINS:
		set(fmt.Sprintf("rule %s4 dst-port %d", map[uint32]string{1: "tcp", 2: "udp"}[u32(16)],
			binary.BigEndian.Uint16(b[30:])),
			fmt.Sprintf("queue %d", binary.NativeEndian.Uint64(b[168:])))
	case unix.ETHTOOL_PERQUEUE:
		if u32(4) != unix.ETHTOOL_SCOALESCE {
			return
		}
		const mask, size = 4096 / 8, 23 * 4 // sizes within struct ethtool_per_queue_op and ethtool_coalesce
		at := 8 + mask
		for q := range mask * 8 {
			if u32(8+q/32*4)>>(q%32)&1 == 0 {
				continue
			}
			set(fmt.Sprintf("moderation of queue %d", q), fmt.Sprintf("adaptive-rx %s adaptive-tx %s rx-usecs %d "+
				"tx-usecs %d",
				onOff[u32(at+4*10) != 0], onOff[u32(at+4*11) != 0], u32(at+4), u32(at+4*5)))
			at += size
		}
	}
}

func unhex(t interface{ Fatal(...any) }, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

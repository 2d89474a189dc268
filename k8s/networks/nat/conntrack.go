// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/nlsock"
)

// A Flow is a connection whose addresses or ports the kernel translates.
type Flow struct {
	// Protocol is "tcp" or "udp".
	Protocol string
	// Src and Dst are the addresses of the first packet as it arrived.
	Src, Dst netip.AddrPort
	// ReplySrc and ReplyDst are the addresses of the answers as they arrive. Without translation,
	// ReplySrc is equal to Dst, and ReplyDst to Src.
	ReplySrc, ReplyDst netip.AddrPort
}

// Constants from include/uapi/linux/netfilter/nfnetlink.h, nfnetlink_conntrack.h and
// nf_conntrack_common.h.
const (
	ctGet         = 1<<8 | 1 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaStatusMask = 26
	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaIPv4Src    = 1
	ctaIPv4Dst    = 2
	ctaIPv6Src    = 3
	ctaIPv6Dst    = 4
	ctaProtoNum   = 1
	ctaProtoSrc   = 2
	ctaProtoDst   = 3
	statusSrcNAT  = 1 << 4
	statusDstNAT  = 1 << 5
	sizeofNfgen   = 4
)

// countFile has the number of tracked connections in this network namespace
// (Documentation/networking/nf_conntrack-sysctl.rst).
const countFile = "/proc/sys/net/netfilter/nf_conntrack_count"

// none reports whether a count file says that the kernel tracks no connection. This is so on nodes
// without netfilter rules, whose pod network uses only eBPF. Flows then skips the table of
// connections: walking its 262144 empty buckets twice takes 16 ms.
func none(file string) bool {
	b, err := os.ReadFile(file)
	return err == nil && string(b) == "0\n"
}

// Flows calls f for every connection of this network namespace that the kernel translates. If the
// kernel cannot list connections, it translates none, and Flows returns nil.
func Flows(f func(Flow)) (err error) {
	if none(countFile) {
		return nil
	}
	c, err := nlsock.Dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	// One request lists only connections that have all given bits. So Flows first asks for source
	// translation, then for destination translation.
	for _, bit := range []uint32{statusSrcNAT, statusDstNAT} {
		ae := netlink.NewAttributeEncoder()
		ae.ByteOrder = binary.BigEndian
		ae.Uint32(ctaStatus, bit)
		ae.Uint32(ctaStatusMask, bit)
		attrs, err := ae.Encode()
		if err != nil {
			return err
		}
		_, err = c.Send(netlink.Message{
			Header: netlink.Header{Type: ctGet, Flags: netlink.Request | netlink.Dump},
			Data:   append(make([]byte, sizeofNfgen), attrs...),
		})
		if err != nil {
			return fmt.Errorf("connections of the node: %w", err)
		}
		for m, err := range c.ReceiveIter() {
			if errors.Is(err, unix.EINVAL) { // no such subsystem (net/netfilter/nfnetlink.c)
				return nil
			}
			if err != nil {
				return fmt.Errorf("connections of the node: %w", err)
			}
			flow, status, err := decode(m.Data)
			if err != nil {
				return fmt.Errorf("connections of the node: %w", err)
			}
			// Linux before 5.15 ignores the filter and lists all connections. A connection with both
			// translations was listed in the first pass already.
			if status&bit != 0 && (bit == statusSrcNAT || status&statusSrcNAT == 0) && flow.Protocol != "" {
				f(flow)
			}
		}
	}
	return nil
}

// decode reads a message about one connection. Protocol is "" if it is neither TCP nor UDP.
func decode(b []byte) (f Flow, status uint32, err error) {
	if len(b) < sizeofNfgen {
		return f, 0, fmt.Errorf("message of %d bytes", len(b))
	}
	ad, err := netlink.NewAttributeDecoder(b[sizeofNfgen:])
	if err != nil {
		return f, 0, err
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		switch ad.Type() {
		case ctaTupleOrig:
			ad.Nested(tuple(&f.Src, &f.Dst, &f.Protocol))
		case ctaTupleReply:
			ad.Nested(tuple(&f.ReplySrc, &f.ReplyDst, &f.Protocol))
		case ctaStatus:
			status = ad.Uint32()
		}
	}
	return f, status, ad.Err()
}

// tuple returns a function that reads one direction of a connection: addresses, ports, protocol.
func tuple(src, dst *netip.AddrPort, protocol *string) func(*netlink.AttributeDecoder) error {
	return func(ad *netlink.AttributeDecoder) error {
		var from, to netip.Addr
		var ports [2]uint16
		for ad.Next() {
			switch ad.Type() {
			case ctaTupleIP:
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						a, _ := netip.AddrFromSlice(ad.Bytes())
						switch ad.Type() {
						case ctaIPv4Src, ctaIPv6Src:
							from = a
						case ctaIPv4Dst, ctaIPv6Dst:
							to = a
						}
					}
					return nil
				})
			case ctaTupleProto:
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						switch ad.Type() {
						case ctaProtoNum:
							switch ad.Uint8() {
							case unix.IPPROTO_TCP:
								*protocol = "tcp"
							case unix.IPPROTO_UDP:
								*protocol = "udp"
							}
						case ctaProtoSrc:
							ports[0] = ad.Uint16()
						case ctaProtoDst:
							ports[1] = ad.Uint16()
						}
					}
					return nil
				})
			}
		}
		*src, *dst = netip.AddrPortFrom(from, ports[0]), netip.AddrPortFrom(to, ports[1])
		return nil
	}
}

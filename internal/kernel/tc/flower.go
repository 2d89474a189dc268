// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// cls_flower's attributes (linux/pkt_cls.h).
const (
	flowerClassID     = 1
	flowerEthType     = 8
	flowerIPProto     = 9
	flowerIPv4Src     = 10 // then its mask; destination likewise
	flowerIPv4Dst     = 12
	flowerIPv6Src     = 14
	flowerIPv6Dst     = 16
	flowerTCPSrc      = 18
	flowerTCPDst      = 19
	flowerUDPSrc      = 20
	flowerUDPDst      = 21
	flowerFlags       = 22
	flowerVLANID      = 23
	flowerVLANPrio    = 24
	flowerVLANEthType = 25
	flowerTCPSrcMask  = 35 // then TCP destination, UDP source, UDP destination
	flowerUDPDstMask  = 38
	flowerInHWCount   = 86
	flowerSkipSW      = 2      // TCA_CLS_FLAGS_SKIP_SW
	minPriority       = 0xffe0 // TC_H_MIN_PRIORITY
	clsactMajor       = 0xffff0000
	mostClasses       = 16
	firstFlowerPref   = 28260 // niclane's first preference; it needs one for each protocol
	protocolIPv4      = unix.ETH_P_IP
	protocolIPv6      = unix.ETH_P_IPV6
	protocolTagged    = unix.ETH_P_8021Q
)

// flowerPref returns the preference and the protocol of a filter for a match.
func flowerPref(m device.Match) (pref, protocol uint16) {
	switch {
	case m.VLAN != 0:
		return firstFlowerPref + 2, protocolTagged
	case m.Family == 6:
		return firstFlowerPref + 1, protocolIPv6
	}
	return firstFlowerPref, protocolIPv4
}

// placedFlower is a filter with its place in the kernel.
type placedFlower struct {
	device.Flower
	info, handle uint32
}

// Flowers returns all filters on a device's ingress that lead to traffic classes of the card,
// niclane's and foreign. niclane's own come last. If several filters have the same match,
// callers take the last one.
func (c *Client) Flowers(dev string) ([]device.Flower, error) {
	placed, err := c.flowers(dev)
	var others, own []device.Flower
	for _, p := range placed {
		if p.Pref == 0 {
			own = append(own, p.Flower)
		} else {
			others = append(others, p.Flower)
		}
	}
	return append(others, own...), err
}

func (c *Client) flowers(dev string) ([]placedFlower, error) {
	delete(c.placed, dev)
	q, err := c.qdisc(dev, "clsact")
	if err != nil || q == nil {
		return nil, err
	}
	reps, err := c.filters(dev, clsactIngress)
	if err != nil {
		return nil, err
	}
	var out []placedFlower
	places := map[place]placedFlower{}
	for _, r := range reps {
		if f, ok := flowerOf(dev, r); ok {
			p := placedFlower{f, r.info, r.handle}
			if _, ok := places[placeOf(f)]; !ok {
				places[placeOf(f)] = p
			}
			out = append(out, p)
		}
	}
	c.placed[dev] = places
	return out, nil
}

// locateFlower returns the filter with f's match and preference as it is now. It asks for the
// filter at its last known place, and makes a dump if it is no longer there.
func (c *Client) locateFlower(f device.Flower) (placedFlower, bool, error) {
	if p, ok := c.placed[f.Dev][placeOf(f)]; ok {
		index, err := c.Index(f.Dev)
		if err != nil {
			return p, false, err
		}
		reps, err := c.do(request{typ: unix.RTM_GETTFILTER, flags: netlink.Echo, ifindex: index, parent: clsactIngress,
			info: p.info, handle: p.handle})
		if err == nil && len(reps) == 1 {
			if now, ok := flowerOf(f.Dev, reps[0]); ok && placeOf(now) == placeOf(f) {
				return placedFlower{now, p.info, p.handle}, true, nil
			}
		}
	}
	p, ok, err := c.findFlower(f)
	return p, ok && p.Pref == f.Pref, err
}

// findFlower returns the filter with f's match. If there are several, it prefers the one with
// f's preference.
func (c *Client) findFlower(f device.Flower) (found placedFlower, ok bool, err error) {
	all, err := c.flowers(f.Dev)
	if err != nil {
		return found, false, err
	}
	for _, p := range all {
		if p.Match == f.Match && (!ok || p.Pref == f.Pref) {
			found, ok = p, true
		}
	}
	return found, ok, nil
}

// A place identifies a filter on a device. niclane makes at most one filter for each place.
type place struct {
	match device.Match
	pref  uint16
}

func placeOf(f device.Flower) place { return place{f.Match, f.Pref} }

// flowerOf decodes a filter. ok is false for a filter that a device.Flower cannot express: a
// filter of another kind, one that software also uses, or one with actions or other keys.
func flowerOf(dev string, r reply) (f device.Flower, ok bool) {
	f.Dev = dev
	if r.kind != "flower" {
		return f, false
	}
	ad, err := netlink.NewAttributeDecoder(r.options)
	if err != nil {
		return f, false
	}
	var flags uint32
	var proto byte
	value := map[uint16][]byte{}
	for ad.Next() {
		switch t := ad.Type(); {
		case t == flowerClassID:
			f.Class = int(ad.Uint32()) - clsactMajor - minPriority
		case t == flowerFlags:
			flags = ad.Uint32()
		case t == flowerIPProto:
			proto = ad.Uint8()
		case t == flowerInHWCount:
		case t >= flowerEthType && t <= flowerVLANEthType || t >= flowerTCPSrcMask && t <= flowerUDPDstMask:
			value[t] = ad.Bytes()
		default:
			return f, false
		}
	}
	if ad.Err() != nil || flags&flowerSkipSW == 0 || f.Class < 1 || f.Class >= mostClasses {
		return f, false
	}
	f.Match, ok = flowerMatch(proto, value)
	if own, _ := flowerPref(f.Match); uint16(r.info>>16) != own {
		f.Pref = uint16(r.info >> 16)
	}
	return f, ok
}

func flowerMatch(proto byte, value map[uint16][]byte) (m device.Match, ok bool) {
	u16 := func(t uint16) uint16 {
		if len(value[t]) < 2 {
			return 0
		}
		return binary.BigEndian.Uint16(value[t])
	}
	ethertype := u16(flowerEthType)
	if b := value[flowerVLANID]; len(b) >= 2 {
		m.VLAN = int(binary.NativeEndian.Uint16(b))
	}
	if ethertype == protocolTagged {
		ethertype = u16(flowerVLANEthType)
		if m.VLAN == 0 {
			return m, false
		}
	}
	if value[flowerVLANPrio] != nil {
		return m, false
	}
	var src, dst uint16
	switch ethertype {
	case protocolIPv4:
		m.Family, src, dst = 4, flowerIPv4Src, flowerIPv4Dst
	case protocolIPv6:
		m.Family, src, dst = 6, flowerIPv6Src, flowerIPv6Dst
	default:
		return m, false
	}
	// On receive, the destination is this host.
	if m.Remote, ok = flowerPrefix(value[src], value[src+1]); !ok {
		return m, false
	}
	if m.Local, ok = flowerPrefix(value[dst], value[dst+1]); !ok {
		return m, false
	}
	switch proto {
	case unix.IPPROTO_TCP:
		m.Protocol, m.RemotePort, m.LocalPort = "tcp", u16(flowerTCPSrc), u16(flowerTCPDst)
	case unix.IPPROTO_UDP:
		m.Protocol, m.RemotePort, m.LocalPort = "udp", u16(flowerUDPSrc), u16(flowerUDPDst)
	default:
		return m, false
	}
	for t := uint16(flowerTCPSrcMask); t <= flowerUDPDstMask; t++ {
		if value[t] != nil && u16(t) != 0xffff {
			return m, false
		}
	}
	return m, true
}

func flowerPrefix(addr, mask []byte) (string, bool) {
	if addr == nil {
		return "", true
	}
	a, ok := netip.AddrFromSlice(addr)
	if !ok || len(mask) != len(addr) {
		return "", false
	}
	n, ended := 0, false
	for _, b := range mask {
		ones := bits.LeadingZeros8(^b)
		if ended && b != 0 || b != ^byte(0)<<(8-ones) {
			return "", false // the mask has holes
		}
		n, ended = n+ones, ended || ones < 8
	}
	p, err := a.Prefix(n)
	return p.String(), err == nil
}

func (c *Client) flowerRequest(f device.Flower) (request, error) {
	index, err := c.Index(f.Dev)
	if err != nil {
		return request{}, err
	}
	if f.Class < 1 || f.Class >= mostClasses {
		return request{}, fmt.Errorf("%w: traffic class %d: want 1 to %d", unix.EINVAL, f.Class, mostClasses-1)
	}
	if f.Match.Family != 4 && f.Match.Family != 6 || f.Match.Protocol != "tcp" && f.Match.Protocol != "udp" {
		return request{}, fmt.Errorf("%w: match %s", unix.EINVAL, f.Match)
	}
	pref, protocol := flowerPref(f.Match)
	if f.Pref != 0 {
		pref = f.Pref
	}
	return request{
		ifindex: index, parent: clsactIngress, kind: "flower",
		info: uint32(pref)<<16 | uint32(bits.ReverseBytes16(protocol)),
		options: func(ae *netlink.AttributeEncoder) {
			ae.Uint32(flowerClassID, clsactMajor|minPriority+uint32(f.Class))
			ae.Uint32(flowerFlags, flowerSkipSW)
			encodeFlower(ae, f.Match, protocol)
		},
	}, nil
}

func encodeFlower(ae *netlink.AttributeEncoder, m device.Match, protocol uint16) {
	be := func(t, v uint16) { ae.Bytes(t, binary.BigEndian.AppendUint16(nil, v)) }
	be(flowerEthType, protocol)
	src, dst, ethertype := uint16(flowerIPv4Src), uint16(flowerIPv4Dst), uint16(protocolIPv4)
	if m.Family == 6 {
		src, dst, ethertype = flowerIPv6Src, flowerIPv6Dst, protocolIPv6
	}
	if m.VLAN != 0 {
		ae.Uint16(flowerVLANID, uint16(m.VLAN))
		be(flowerVLANEthType, ethertype)
	}
	proto, sport, dport := byte(unix.IPPROTO_TCP), uint16(flowerTCPSrc), uint16(flowerTCPDst)
	if m.Protocol == "udp" {
		proto, sport, dport = unix.IPPROTO_UDP, flowerUDPSrc, flowerUDPDst
	}
	ae.Uint8(flowerIPProto, proto)
	prefix := func(t uint16, text string) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return // the filter matches any address
		}
		mask := make([]byte, p.Addr().BitLen()/8)
		for i := range p.Bits() {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		ae.Bytes(t, p.Masked().Addr().AsSlice())
		ae.Bytes(t+1, mask)
	}
	prefix(src, m.Remote)
	prefix(dst, m.Local)
	if m.RemotePort != 0 {
		be(sport, m.RemotePort)
	}
	if m.LocalPort != 0 {
		be(dport, m.LocalPort)
	}
}

func (c *Client) addFlower(f device.Flower) error {
	r, err := c.flowerRequest(f)
	return flowerError("add", f, c.send(r, err, unix.RTM_NEWTFILTER, netlink.Create|netlink.Excl))
}

func (c *Client) deleteFlower(f device.Flower) error {
	p, ok, err := c.locateFlower(f)
	switch {
	case err != nil:
	case !ok:
		err = unix.ENOENT
	case p.Flower != f:
		err = fmt.Errorf("another program has changed it: it leads to class %d, not %d", p.Class, f.Class)
	}
	if err != nil {
		return flowerError("delete", f, err)
	}
	index, err := c.Index(f.Dev)
	if err != nil {
		return flowerError("delete", f, err)
	}
	delete(c.placed[f.Dev], placeOf(f))
	_, err = c.do(request{typ: unix.RTM_DELTFILTER, ifindex: index, parent: clsactIngress, info: p.info,
		handle: p.handle, kind: "flower"})
	return flowerError("delete", f, err)
}

// changeFlower deletes the old filter and then adds the new one, because cards refuse two
// filters with the same match. If that fails, it adds the old filter again.
func (c *Client) changeFlower(old, f device.Flower) error {
	if err := c.deleteFlower(old); err != nil {
		return err
	}
	if err := c.addFlower(f); err != nil {
		return errors.Join(err, c.addFlower(old))
	}
	return nil
}

func flowerError(verb string, f device.Flower, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s flower filter %s of %s: %w", verb, f.Match, f.Dev, err)
}

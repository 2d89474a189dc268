// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// Rules are a device's steering rules (ethtool -n).
type Rules struct {
	// Rules are the rules that a device.Match can express. Rules[i] is at Locations[i].
	Rules     []device.Rule
	Locations []int
	// Other are all other rules.
	Other []device.OtherRule
	// Capacity is the size of the rule table, 0 if the driver does not say.
	Capacity int
	// Anywhere means that the driver chooses the location of a new rule itself.
	Anywhere bool
}

// Layout of struct ethtool_rxnfc and ethtool_rx_flow_spec (linux/ethtool.h) on
// 64-bit systems.
const (
	rxnfcSize     = 192
	rxnfcFlow     = 4
	rxnfcData     = 8
	rxnfcSpec     = 16
	rxnfcRuleCnt  = 184 // also the RSS context
	rxnfcRuleLocs = 188

	specFlow     = 0
	specHeader   = 4   // union ethtool_flow_union, 52 bytes
	specExt      = 56  // struct ethtool_flow_ext, 20 bytes
	specMask     = 76  // header mask
	specExtMask  = 128 // mask of the extension
	specCookie   = 152
	specLocation = 160
	specSize     = 168

	// In struct ethtool_flow_ext.
	extTCI     = 10
	vlanIDMask = 0x0fff
)

// Flow types and flags of linux/ethtool.h.
const (
	flowTCP4  = 0x01
	flowUDP4  = 0x02
	flowTCP6  = 0x05
	flowUDP6  = 0x06
	flowExt   = 0x80000000
	flowMAC   = 0x40000000
	flowRSS   = 0x20000000
	flowFlags = flowExt | flowMAC | flowRSS

	maxRules = 1 << 20
	// locSpecial is RX_CLS_LOC_SPECIAL: the driver chooses locations.
	locSpecial = 0x80000000
)

// Rules reads all steering rules. EOPNOTSUPP means that the driver has none.
func (c *Client) Rules(dev string) (Rules, error) {
	delete(c.seen, dev)
	return c.known(dev)
}

// Anew drops the rules that the client has read. Callers use it when other programs may have
// changed the rules.
func (c *Client) Anew() { clear(c.seen) }

// known is Rules, but does not read a location again that it has read before. Without this,
// AddRule would read the whole table for each new rule. The result may be out of date: another
// program may have put a different rule at a location.
func (c *Client) known(dev string) (Rules, error) {
	fail := func(err error) (Rules, error) { return Rules{}, fmt.Errorf("get rules of %s: %w", dev, err) }
	locations, r, err := c.locations(dev)
	if err != nil {
		return fail(err)
	}
	seen := make(map[uint32][]byte, len(locations))
	for _, loc := range locations {
		buf := c.seen[dev][loc]
		if buf == nil {
			if buf, err = c.rule(dev, loc); err != nil {
				return fail(fmt.Errorf("rule %d: %w", loc, err))
			}
		}
		seen[loc] = buf
		rule, ok := decodeRule(buf)
		if !ok {
			flow := binary.NativeEndian.Uint32(buf[rxnfcSpec+specFlow:])
			r.Other = append(r.Other, device.OtherRule{Location: int(loc), FlowType: int(flow &^ flowFlags)})
			continue
		}
		rule.Dev = dev
		r.Rules, r.Locations = append(r.Rules, rule), append(r.Locations, int(loc))
	}
	if c.seen == nil {
		c.seen = map[string]map[uint32][]byte{}
	}
	c.seen[dev] = seen
	return r, nil
}

// Rule reads the rule that has r's match. there is false if no rule has that match.
func (c *Client) Rule(r device.Rule) (now device.Rule, there bool, err error) {
	have, err := c.known(r.Dev)
	if err != nil || have.find(r) < 0 {
		return now, false, err
	}
	have, i, err := c.locate(r)
	if err != nil || i < 0 {
		return now, false, err
	}
	return have.Rules[i], true, nil
}

// locations returns the locations of the rules, and the table's properties in r.
func (c *Client) locations(dev string) (at []uint32, r Rules, err error) {
	ask := make([]byte, rxnfcSize)
	binary.NativeEndian.PutUint32(ask, unix.ETHTOOL_GRXCLSRLCNT)
	if err := c.ioctl(dev, ask); err != nil {
		return nil, r, err
	}
	n := binary.NativeEndian.Uint32(ask[rxnfcRuleCnt:])
	if n > maxRules {
		return nil, r, fmt.Errorf("%d rules", n)
	}
	all := make([]byte, rxnfcSize+4*int(n))
	binary.NativeEndian.PutUint32(all, unix.ETHTOOL_GRXCLSRLALL)
	binary.NativeEndian.PutUint32(all[rxnfcRuleCnt:], n)
	if err := c.ioctl(dev, all); err != nil {
		return nil, r, err
	}
	// Some drivers report the table's size in the first reply (the number of rules), others in
	// the second reply (the locations; mlx5: mellanox/mlx5/core/en_fs_ethtool.c).
	size := max(binary.NativeEndian.Uint64(ask[rxnfcData:])&^locSpecial,
		binary.NativeEndian.Uint64(all[rxnfcData:])&^locSpecial)
	r = Rules{Capacity: int(size), Anywhere: binary.NativeEndian.Uint64(ask[rxnfcData:])&locSpecial != 0}
	n = min(n, binary.NativeEndian.Uint32(all[rxnfcRuleCnt:]))
	for i := range int(n) {
		at = append(at, binary.NativeEndian.Uint32(all[rxnfcRuleLocs+4*i:]))
	}
	return at, r, nil
}

// rule reads the rule at a location.
func (c *Client) rule(dev string, location uint32) ([]byte, error) {
	buf := make([]byte, rxnfcSize)
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_GRXCLSRULE)
	binary.NativeEndian.PutUint32(buf[rxnfcSpec+specLocation:], location)
	return buf, c.ioctl(dev, buf)
}

// decodeRule reads struct ethtool_rxnfc. ok is false for a rule that a device.Match cannot
// express: other protocols, masks that are not prefixes, Ethernet addresses, type of
// service, user data, drops.
func decodeRule(b []byte) (r device.Rule, ok bool) {
	if len(b) < rxnfcSize {
		return r, false
	}
	spec := b[rxnfcSpec : rxnfcSpec+specSize]
	flow := binary.NativeEndian.Uint32(spec[specFlow:])
	value, mask := spec[specHeader:], spec[specMask:]
	var n int // length of an address in bytes
	switch flow &^ flowFlags {
	case flowTCP4, flowUDP4:
		r.Match.Family, n = 4, 4
	case flowTCP6, flowUDP6:
		r.Match.Family, n = 6, 16
	default:
		return r, false
	}
	r.Match.Protocol = "tcp"
	if t := flow &^ flowFlags; t == flowUDP4 || t == flowUDP6 {
		r.Match.Protocol = "udp"
	}
	// struct ethtool_tcpip{4,6}_spec: source, destination, source port, destination port,
	// type of service. On receive, the destination is local.
	var ok1, ok2, ok3, ok4 bool
	r.Match.Remote, ok1 = prefix(value[:n], mask[:n])
	r.Match.Local, ok2 = prefix(value[n:2*n], mask[n:2*n])
	r.Match.RemotePort, ok3 = port(value[2*n:], mask[2*n:])
	r.Match.LocalPort, ok4 = port(value[2*n+2:], mask[2*n+2:])
	if !ok1 || !ok2 || !ok3 || !ok4 || mask[2*n+4] != 0 || flow&flowMAC != 0 {
		return r, false
	}
	if flow&flowExt != 0 && !decodeExt(spec[specExt:], spec[specExtMask:], &r.Match) {
		return r, false
	}
	cookie := binary.NativeEndian.Uint64(spec[specCookie:])
	if cookie > 0xffff { // RX_CLS_FLOW_DISC, RX_CLS_FLOW_WAKE, a virtual function
		return r, false
	}
	r.Queue = int(cookie)
	if flow&flowRSS != 0 {
		r.Context = int(binary.NativeEndian.Uint32(b[rxnfcRuleCnt:]))
	}
	return r, true
}

// decodeExt reads struct ethtool_flow_ext: 2 bytes of padding, an Ethernet address, VLAN
// type, VLAN tag, user data. A device.Match can express only the VLAN ID.
func decodeExt(value, mask []byte, m *device.Match) bool {
	for _, b := range mask[2:8] {
		if b != 0 {
			return false
		}
	}
	etype, tci := binary.BigEndian.Uint16(mask[8:]), binary.BigEndian.Uint16(mask[extTCI:])
	data := binary.BigEndian.Uint64(mask[12:])
	if etype != 0 || data != 0 || tci != 0 && tci != vlanIDMask {
		return false
	}
	if tci != 0 {
		m.VLAN = int(binary.BigEndian.Uint16(value[extTCI:]) & vlanIDMask)
	}
	return true
}

// prefix returns an address and its mask as a prefix, or "" if the mask is empty. The bool is
// false if the mask has holes.
func prefix(value, mask []byte) (string, bool) {
	n := 0
	for i, b := range mask {
		ones := bits.LeadingZeros8(^b)
		if b != ^byte(0)<<(8-ones) || ones > 0 && n != 8*i {
			return "", false // the mask has holes
		}
		n += ones
	}
	if n == 0 {
		return "", true
	}
	a, ok := netip.AddrFromSlice(value)
	if !ok {
		return "", false
	}
	p, err := a.Prefix(n)
	return p.String(), err == nil
}

// port reads a port. The bool is false if the mask covers only a part of the port.
func port(value, mask []byte) (uint16, bool) {
	switch binary.BigEndian.Uint16(mask) {
	case 0:
		return 0, true
	case 0xffff:
		return binary.BigEndian.Uint16(value), true
	}
	return 0, false
}

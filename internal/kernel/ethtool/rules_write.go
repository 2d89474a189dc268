// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// locAny is RX_CLS_LOC_ANY: the driver chooses the location.
const locAny = 0xffffffff

// AddRule inserts a steering rule (ETHTOOL_SRXCLSRLINS; netlink has no such request). If
// the driver does not choose the location, AddRule takes the lowest free one. ethtool(8)
// takes the highest, so niclane's rules come before those of ethtool. The error is EEXIST if
// a rule with that match exists, and ENOSPC if the table is full.
func (c *Client) AddRule(r device.Rule) error {
	have, err := c.known(r.Dev)
	if err != nil {
		return err
	}
	if i := have.find(r); i >= 0 {
		return ruleError("add", r, fmt.Errorf("%w: it is at location %d", unix.EEXIST, have.Locations[i]))
	}
	location := uint32(locAny)
	if !have.Anywhere {
		free, ok := have.lowestFree()
		if !ok {
			return ruleError("add", r, fmt.Errorf("%w: all %d places are taken", unix.ENOSPC, have.Capacity))
		}
		location = uint32(free)
	}
	return c.insert(r, location)
}

func (c *Client) insert(r device.Rule, location uint32) error {
	buf, err := encodeRule(r, location)
	if err == nil {
		err = c.ioctl(r.Dev, buf)
	}
	return ruleError("add", r, err)
}

// DeleteRule removes the rule with r's match. The error is ENOENT if there is none.
func (c *Client) DeleteRule(r device.Rule) error {
	have, i, err := c.locate(r)
	if err != nil {
		return err
	}
	if i < 0 {
		return ruleError("delete", r, unix.ENOENT)
	}
	if err := unchanged(r, have.Rules[i]); err != nil {
		return ruleError("delete", r, err)
	}
	return c.remove(r, have.Locations[i])
}

// unchanged returns an error if the rule now has another target than r: another program has
// changed it.
func unchanged(r, now device.Rule) error {
	if r.Context == now.Context && (r.Context != 0 || r.Queue == now.Queue) {
		return nil
	}
	return fmt.Errorf("another program has changed it: it leads to %s, not %s", ruleTarget(now), ruleTarget(r))
}

func ruleTarget(r device.Rule) string {
	if r.Context != 0 {
		return fmt.Sprintf("context %d", r.Context)
	}
	return fmt.Sprintf("queue %d", r.Queue)
}

// locate returns the rules and the index of the rule that has r's match now. The index is -1
// if no rule has it.
func (c *Client) locate(r device.Rule) (have Rules, i int, err error) {
	if have, err = c.known(r.Dev); err != nil {
		return have, -1, err
	}
	if i = have.find(r); i >= 0 {
		buf, err := c.rule(r.Dev, uint32(have.Locations[i]))
		if now, ok := decodeRule(buf); err == nil && ok && now.Match == r.Match {
			now.Dev = r.Dev
			have.Rules[i] = now
			return have, i, nil
		}
	}
	// The rule does not exist, or is no longer at its old location.
	if have, err = c.Rules(r.Dev); err != nil {
		return have, -1, err
	}
	return have, have.find(r), nil
}

func (c *Client) remove(r device.Rule, location int) error {
	buf := make([]byte, rxnfcSize)
	binary.NativeEndian.PutUint32(buf, unix.ETHTOOL_SRXCLSRLDEL)
	binary.NativeEndian.PutUint32(buf[rxnfcSpec+specLocation:], uint32(location))
	delete(c.seen[r.Dev], uint32(location))
	return ruleError("delete", r, c.ioctl(r.Dev, buf))
}

// MoveRule gives a rule another target. Cards cannot change a rule, so MoveRule deletes it
// and adds the new one at the same location. If that fails, it adds the old rule again.
func (c *Client) MoveRule(old, next device.Rule) error {
	have, i, err := c.locate(old)
	if err != nil {
		return err
	}
	if i < 0 {
		return ruleError("change", old, unix.ENOENT)
	}
	if err := unchanged(old, have.Rules[i]); err != nil {
		return ruleError("change", old, err)
	}
	location := uint32(have.Locations[i])
	if have.Anywhere {
		location = locAny
	}
	if err := c.remove(old, have.Locations[i]); err != nil {
		return err
	}
	if err := c.insert(next, location); err != nil {
		return errors.Join(err, c.insert(old, location))
	}
	return nil
}

// find returns the index of the rule with r's match, or -1 if there is none.
func (rs Rules) find(r device.Rule) int {
	return slices.IndexFunc(rs.Rules, func(have device.Rule) bool { return have.Match == r.Match })
}

// lowestFree returns the first location without a rule.
func (rs Rules) lowestFree() (int, bool) {
	taken := slices.Clone(rs.Locations)
	for _, o := range rs.Other {
		taken = append(taken, o.Location)
	}
	slices.Sort(taken)
	free := 0
	for _, t := range taken {
		if t == free {
			free++
		}
	}
	return free, rs.Capacity == 0 || free < rs.Capacity
}

// encodeRule is the inverse of decodeRule. A set bit in a mask means that the bit is
// compared; ethtool(8) shows the opposite.
func encodeRule(r device.Rule, location uint32) ([]byte, error) {
	b := make([]byte, rxnfcSize)
	spec := b[rxnfcSpec : rxnfcSpec+specSize]
	flow, ok := map[string]uint32{"tcp4": flowTCP4, "udp4": flowUDP4, "tcp6": flowTCP6,
		"udp6": flowUDP6}[fmt.Sprint(r.Match.Protocol, r.Match.Family)]
	if !ok {
		return nil, fmt.Errorf("%w: protocol %q of IPv%d", unix.EINVAL, r.Match.Protocol, r.Match.Family)
	}
	n := 4
	if r.Match.Family == 6 {
		n = 16
	}
	value, mask := spec[specHeader:], spec[specMask:]
	for _, a := range []struct {
		text string
		at   int
	}{{r.Match.Remote, 0}, {r.Match.Local, n}} {
		if err := encodePrefix(value[a.at:a.at+n], mask[a.at:a.at+n], a.text); err != nil {
			return nil, err
		}
	}
	for _, p := range []struct {
		port uint16
		at   int
	}{{r.Match.RemotePort, 2 * n}, {r.Match.LocalPort, 2*n + 2}} {
		if p.port != 0 {
			binary.BigEndian.PutUint16(value[p.at:], p.port)
			binary.BigEndian.PutUint16(mask[p.at:], 0xffff)
		}
	}
	if r.Match.VLAN != 0 {
		flow |= flowExt
		binary.BigEndian.PutUint16(spec[specExt+extTCI:], uint16(r.Match.VLAN))
		binary.BigEndian.PutUint16(spec[specExtMask+extTCI:], vlanIDMask)
	}
	if r.Context != 0 {
		flow |= flowRSS
		binary.NativeEndian.PutUint32(b[rxnfcRuleCnt:], uint32(r.Context))
	} else {
		binary.NativeEndian.PutUint64(spec[specCookie:], uint64(r.Queue))
	}
	binary.NativeEndian.PutUint32(b, unix.ETHTOOL_SRXCLSRLINS)
	binary.NativeEndian.PutUint32(spec[specFlow:], flow)
	binary.NativeEndian.PutUint32(spec[specLocation:], location)
	return b, nil
}

func encodePrefix(value, mask []byte, text string) error {
	if text == "" {
		return nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().BitLen() != 8*len(value) {
		return fmt.Errorf("%w: prefix %q in a rule with addresses of %d bytes", unix.EINVAL, text, len(value))
	}
	copy(value, p.Masked().Addr().AsSlice())
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return nil
}

func ruleError(verb string, r device.Rule, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s rule %s of %s: %w", verb, r.Match, r.Dev, err)
}

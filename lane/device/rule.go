// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Rule steers matching packets to an RSS context, or to the single queue
// Queue if Context is 0.
type Rule struct {
	Dev     string `json:"dev"`
	Match   Match  `json:"match"`
	Context int    `json:"context"`
	Queue   int    `json:"queue"`
}

// Kind implements Object.
func (Rule) Kind() string { return "rule" }

// Key implements Object.
func (r Rule) Key() string {
	var b [128]byte
	return string(r.Match.AppendTo(append(append(append(b[:0], "rule/"...), r.Dev...), '/')))
}

// Brief implements Object.
func (r Rule) Brief() string {
	if r.Context > 0 {
		return "RSS context " + strconv.Itoa(r.Context)
	}
	return "queue " + strconv.Itoa(r.Queue)
}

func (r Rule) commands(c Change) []string {
	if c.New == nil {
		return one(fmt.Sprintf("ethtool -N %s delete <location of %s>", r.Dev, r.Match))
	}
	return one(fmt.Sprintf("ethtool -N %s %s", r.Dev, r.args()))
}

func (r Rule) match() Match { return r.Match }

func (r Rule) equal(o Object) bool {
	b, ok := o.(Rule)
	return ok && r == b
}

// args returns the arguments after ethtool -N.
func (r Rule) args() string {
	m := r.Match
	args := []string{fmt.Sprintf("flow-type %s%d", m.Protocol, m.Family)}
	add := func(name, v string) {
		if v != "" && v != "0" {
			args = append(args, name+" "+v)
		}
	}
	// On receive, the member's address and port are the destination.
	add("src-ip", ethtoolPrefix(m.Remote))
	add("dst-ip", ethtoolPrefix(m.Local))
	add("src-port", fmt.Sprint(m.RemotePort))
	add("dst-port", fmt.Sprint(m.LocalPort))
	if m.VLAN != 0 {
		add("vlan", fmt.Sprintf("%d m 0xf000", m.VLAN)) // any priority
	}
	if r.Context > 0 {
		return strings.Join(append(args, fmt.Sprintf("context %d", r.Context)), " ")
	}
	return strings.Join(append(args, fmt.Sprintf("action %d", r.Queue)), " ")
}

// ethtoolPrefix returns a prefix in ethtool's form, where a set bit of the mask
// is not compared (ethtool(8), -N, m).
func ethtoolPrefix(text string) string {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return ""
	}
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	mask := p.Addr().AsSlice()
	for i := range mask {
		mask[i] = 0xff
		if n := p.Bits() - 8*i; n > 0 {
			mask[i] = byte(0xff >> min(n, 8))
		}
	}
	m, _ := netip.AddrFromSlice(mask)
	return p.Addr().String() + " m " + m.String()
}

// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strconv"
)

// A Flower is a flower filter on a device's ingress that only the card uses
// (skip_sw). It leads matching packets to the queues of an mqprio traffic class
// (hw_tc).
type Flower struct {
	Dev   string `json:"dev"`
	Match Match  `json:"match"`
	// Class is 1 to 15. The default class, 0, takes no filters.
	Class int `json:"class"`
	// Pref is 0 for niclane's own filter. For a filter of another program, it is that filter's
	// preference, which differs from niclane's.
	Pref uint16 `json:"pref,omitempty"`
}

// Kind implements Object.
func (Flower) Kind() string { return "flower" }

// Key implements Object.
func (f Flower) Key() string {
	var b [128]byte
	return string(f.Match.AppendTo(append(append(append(b[:0], "flower/"...), f.Dev...), '/')))
}

// Brief implements Object.
func (f Flower) Brief() string {
	if f.Pref != 0 {
		return fmt.Sprintf("traffic class %d by preference %d", f.Class, f.Pref)
	}
	return fmt.Sprintf("traffic class %d", f.Class)
}

func (f Flower) commands(c Change) []string {
	m := f.Match
	protocol := map[int]string{4: "ip", 6: "ipv6"}[m.Family]
	keys := ""
	if m.VLAN != 0 {
		keys, protocol = fmt.Sprintf(" vlan_id %d vlan_ethtype %s", m.VLAN, protocol), "802.1Q"
	}
	keys += " ip_proto " + m.Protocol
	// On receive, the member's address and port are the destination.
	for _, k := range []struct{ name, value string }{
		{"src_ip", m.Remote}, {"dst_ip", m.Local}, {"src_port", strconv.Itoa(int(m.RemotePort))},
		{"dst_port", strconv.Itoa(int(m.LocalPort))},
	} {
		if k.value != "" && k.value != "0" {
			keys += " " + k.name + " " + k.value
		}
	}
	if c.New == nil {
		return one(fmt.Sprintf("tc filter del dev %s ingress protocol %s pref <of %s> handle <of it> flower", f.Dev,
			protocol, m))
	}
	return one(fmt.Sprintf("tc filter %s dev %s ingress protocol %s flower%s skip_sw hw_tc %d",
		c.verb("add", "replace", "del"), f.Dev, protocol, keys, f.Class))
}

func (f Flower) match() Match { return f.Match }

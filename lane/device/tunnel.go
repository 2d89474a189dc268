// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strings"
)

// A Tunnel is a tunnel over UDP, by the destination port of its packets.
type Tunnel struct {
	Protocol string `json:"protocol"` // "vxlan" or "geneve"
	Port     uint16 `json:"port"`
}

// String returns the tunnel as a lanes file has it: "vxlan:8472".
func (t Tunnel) String() string { return fmt.Sprintf("%s:%d", t.Protocol, t.Port) }

// Tunnels are the tunnels into which a program of niclane looks: if a packet of a tunnel matches no
// entry, the program compares the addresses of the packet inside.
type Tunnels struct {
	Filter  string   `json:"filter"`  // Key of the Filter, or of the XDP
	Tunnels []Tunnel `json:"tunnels"` // 1 to 4, with different ports
}

// Kind implements Object.
func (Tunnels) Kind() string { return "tunnels" }

// Key implements Object.
func (t Tunnels) Key() string { return "tunnels/" + t.Filter }

// Brief implements Object.
func (t Tunnels) Brief() string {
	words := make([]string, len(t.Tunnels))
	for i, one := range t.Tunnels {
		words[i] = one.String()
	}
	return strings.Join(words, ", ")
}

func (t Tunnels) commands(c Change) []string {
	return one(fmt.Sprintf("bpftool map update id <tunnels of %s> key 0 value <%s>", t.Filter,
		c.verb(t.Brief(), t.Brief(), "none")))
}

func (t Tunnels) standsOn() []string {
	if strings.HasPrefix(t.Filter, XDP{}.Kind()+"/") {
		return []string{t.Filter}
	}
	return inFilter(t.Filter)
}

// putTunnels sets or removes the tunnels of a program that is attached.
func (d *Device) putTunnels(t Tunnels, next Object) {
	x, ok := d.XDP()
	if d.hasFilter(t.Filter) || ok && x.Key() == t.Filter {
		replace(&d.Tunnels, t, next)
	}
}

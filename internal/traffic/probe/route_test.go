// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestThrough checks the devices below a route's device, and the VLAN in which packets leave.
func TestThrough(t *testing.T) {
	link := func(index, parent, master, ns int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, ParentIndex: parent, MasterIndex: master, NetNsID: ns}
	}
	links := map[int]netlink.Link{
		1: &netlink.Device{LinkAttrs: link(1, 0, 0, -1)},
		2: &netlink.Vlan{LinkAttrs: link(2, 1, 0, -1), VlanId: 7},
		3: &netlink.Vlan{LinkAttrs: link(3, 2, 0, -1), VlanId: 99}, // within the VLAN 7
		4: &netlink.Macvlan{LinkAttrs: link(4, 2, 0, -1)},
		5: &netlink.Veth{LinkAttrs: link(5, 1, 0, -1)},           // its parent is its peer
		6: &netlink.Vlan{LinkAttrs: link(6, 1, 0, 0), VlanId: 8}, // its parent is in another namespace
		7: &netlink.Bond{LinkAttrs: link(7, 0, 0, -1)},
		8: &netlink.Vlan{LinkAttrs: link(8, 7, 0, -1), VlanId: 9},
		9: &netlink.Device{LinkAttrs: link(9, 0, 7, -1)}, // in the bond
	}
	for _, c := range []struct {
		name       string
		route, dev int
		vlan       int
		ok         bool
	}{
		{"itself", 1, 1, 0, true},
		{"another", 1, 9, 0, false},
		{"a VLAN", 2, 1, 7, true},
		{"a VLAN's own device", 2, 2, 0, true},
		{"a VLAN in a VLAN: the outer tag", 3, 1, 7, true},
		{"the device over a VLAN's", 2, 3, 0, false},
		{"macvlan on a VLAN", 4, 1, 7, true},
		{"veth", 5, 1, 0, false},
		{"another namespace's device", 6, 1, 0, false},
		{"a bond", 7, 9, 0, true},
		{"a VLAN of a bond", 8, 9, 9, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			vlans, err := below(links[c.route], func(index int) (netlink.Link, error) {
				if l, ok := links[index]; ok {
					return l, nil
				}
				return nil, unix.ENODEV
			})
			if err != nil {
				t.Fatal(err)
			}
			vlan, ok := Path{vlans: vlans}.through(links[c.dev].Attrs())
			if vlan != c.vlan || ok != c.ok {
				t.Errorf("got VLAN %d, %v; want %d, %v", vlan, ok, c.vlan, c.ok)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tunnels are the kinds of links that carry pods' packets inside other packets.
var tunnels = map[string]bool{
	"vxlan": true, "geneve": true, "bareudp": true, "ipip": true, "sit": true, "ip6tnl": true,
	"gre": true, "gretap": true, "ip6gre": true, "ip6gretap": true, "erspan": true, "ip6erspan": true,
	"vti": true, "vti6": true, "xfrm": true,
}

// sometimes are kinds of links that the pod network or another program (a VPN) can make. Only the
// pod network's links carry pods' packets. The kernel calls one kind "tun", the Go package netlink
// calls it "tuntap".
var sometimes = map[string]bool{"wireguard": true, "tun": true, "tuntap": true}

// A tunnel is a link into whose packets niclane looks.
type tunnel struct {
	link netlink.Link
	port int // UDP
	// parent is the index of the device under the link, 0 if the link has none. local and remote are the
	// addresses of its ends, nil if they are not set. external: programs give the remote ends.
	parent        int
	local, remote net.IP
	external      bool
}

// tunnelOf returns the tunnel of a link, false if niclane does not look into links of its kind.
func tunnelOf(l netlink.Link) (tunnel, bool) {
	switch t := l.(type) {
	case *netlink.Vxlan:
		return tunnel{l, t.Port, t.VtepDevIndex, t.SrcAddr, t.Group, t.FlowBased}, true
	case *netlink.Geneve:
		return tunnel{l, int(t.Dport), 0, nil, t.Remote, t.FlowBased}, true
	}
	return tunnel{link: l}, false
}

// tunnelled returns the tunnels through which the pod network sends packets of these addresses, in the
// form of a lanes file ("vxlan:8472"). It returns an error if niclane cannot look into one of them, or
// if one does not leave by the device. node has the node's addresses.
func tunnelled(device string, node, addrs []netip.Addr) (found []string, err error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("links of the node: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		if !suspect(l.Type(), a.Name) || a.Flags&net.FlagUp == 0 {
			continue
		}
		t, into := tunnelOf(l)
		carries := "packets that programs hand to it"
		// Cilium's programs hand packets to its WireGuard, which therefore has no routes.
		if !t.external && (l.Type() != "wireguard" || !strings.HasPrefix(a.Name, "cilium_")) {
			if carries, err = routed(l, addrs); err != nil {
				return nil, err
			}
		}
		if carries == "" {
			continue
		}
		if !into {
			return nil, fmt.Errorf("the pod network is an overlay: %s (%s) carries %s, so the card sees the nodes' "+
				"addresses and never the pod's, and niclane looks only into VXLAN and Geneve; use one of these or "+
				"native routing in the pod network, or put the pod into the host's network", a.Name, l.Type(), carries)
		}
		if by := t.leavesBy(node); by != 0 && !above(links, device)[by] {
			return nil, fmt.Errorf("the pod network is an overlay: %s (%s) carries %s and leaves by %s, and the lanes "+
				"are on %s; set uplink.dev of the policy to the device under the tunnel, or put the pod into the "+
				"host's network", a.Name, l.Type(), carries, nameOf(links, by), device)
		}
		if err := encrypted(t.from(node), t.port, a.Name); err != nil {
			return nil, err
		}
		if name := fmt.Sprintf("%s:%d", l.Type(), t.port); !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// nameOf returns the name of the link with an index, "" if there is none.
func nameOf(links []netlink.Link, index int) string {
	i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == index })
	if i < 0 {
		return ""
	}
	return links[i].Attrs().Name
}

// leavesBy returns the index of the device by which the tunnel's packets leave the node, 0 if it is not
// known. A tunnel without a device and an address of its own is taken to leave by the device with the
// node's address: pod networks give nodes' addresses to it.
func (t *tunnel) leavesBy(node []netip.Addr) int {
	if t.parent != 0 {
		return t.parent
	}
	if len(t.remote) > 0 && !t.remote.IsUnspecified() && !t.remote.IsMulticast() {
		if routes, err := netlink.RouteGet(t.remote); err == nil && len(routes) > 0 {
			return routes[0].LinkIndex
		}
	}
	for _, from := range t.from(node) {
		addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
		if err != nil {
			return 0
		}
		for _, a := range addrs {
			if a.IPNet != nil && a.IP.Equal(from.AsSlice()) {
				return a.LinkIndex
			}
		}
	}
	return 0
}

// from returns the addresses from which the tunnel can send: its own, otherwise the node's.
func (t *tunnel) from(node []netip.Addr) []netip.Addr {
	if local, ok := netip.AddrFromSlice(t.local); ok && !local.IsUnspecified() {
		return []netip.Addr{local.Unmap()}
	}
	return node
}

// encrypted returns an error if an IPsec policy applies to packets from one of these addresses. If
// tunnel is not "", only policies for UDP to the given port count.
func encrypted(from []netip.Addr, port int, tunnel string) error {
	policies, err := policies()
	if err != nil {
		return err
	}
	for _, p := range policies {
		if p.Dir != netlink.XFRM_DIR_OUT || len(p.Tmpls) == 0 || p.Src == nil {
			continue
		}
		if tunnel != "" && (p.Proto != 0 && p.Proto != unix.IPPROTO_UDP || p.DstPort != 0 && p.DstPort != port) {
			continue
		}
		for _, a := range from {
			if !p.Src.Contains(a.AsSlice()) {
				continue
			}
			what := "packets"
			if tunnel != "" {
				what = "the tunnel " + tunnel
			}
			return fmt.Errorf("IPsec of the node encrypts %s from %s to %s (ip xfrm policy), so the card never sees "+
				"the pod's packets; turn off encryption in the pod network, or put the pod into the host's network",
				what, a, p.Dst)
		}
	}
	return nil
}

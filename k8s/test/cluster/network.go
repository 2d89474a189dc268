// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/k8s/test/machine"
)

// connect connects a node with the control plane's machine by a link, with addresses. It makes the
// routes between the node's pods and the control plane's machine, and turns on forwarding.
func (c *Cluster) connect(n *Member) error {
	node, err := netns.GetFromPath(n.NetNS())
	if err != nil {
		return err
	}
	defer node.Close()
	err = c.Control.InNetNS(func() error {
		// After a reboot of the node, the old link may still exist.
		if old, err := netlink.LinkByName(n.wire); err == nil {
			if err := netlink.LinkDel(old); err != nil && !errors.Is(err, unix.ENODEV) {
				return err
			}
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = n.wire, Queues, Queues
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: Uplink, PeerNamespace: netlink.NsFd(node), PeerNumTxQueues: Queues,
			PeerNumRxQueues: Queues,
		})
	})
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	err = setAddresses(c.Control, n.wire, []string{n.outside4 + "/24", n.outside6 + "/64"}, []route{
		{n.Pods[0].String(), n.Inside}, {n.Pods[1].String(), n.inside6},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Control.Name, err)
	}
	err = setAddresses(n.Machine, Uplink, []string{n.Inside + "/24", n.inside6 + "/64"},
		[]route{{"0.0.0.0/0", n.outside4}, {"::/0", n.outside6}})
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return forward(n.Machine)
}

// forward makes a machine a router.
func forward(m *machine.Machine) error {
	return m.InNetNS(func() error {
		for _, file := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+file, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

type route struct{ to, via string }

// setAddresses sets a device up on a machine, and gives it addresses and routes.
func setAddresses(m *machine.Machine, device string, addresses []string, routes []route) error {
	return m.InNetNS(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		for _, text := range addresses {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			a.Flags = 0x02 // IFA_F_NODAD: no other host can have the address
			if err := netlink.AddrAdd(link, a); err != nil {
				return fmt.Errorf("address %s: %w", text, err)
			}
		}
		for _, r := range routes {
			to := netip.MustParsePrefix(r.to)
			err := netlink.RouteAdd(&netlink.Route{
				LinkIndex: link.Attrs().Index, Gw: net.ParseIP(r.via),
				Dst: &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())},
			})
			if err != nil {
				return fmt.Errorf("route to %s: %w", to, err)
			}
		}
		return nil
	})
}

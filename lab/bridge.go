// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lab/emucard"
)

// Bridges of a lab without an emulated card.
const (
	switchBridge = "br-switch" // the switch
	portBridge   = "br-port"   // joins the SUT's port and the links
)

// addBridges makes what addFabric makes, for a lab without a card: bridges that know the port of
// every address, and the transmit side of the SUT's port. The eBPF switch cannot be used here.
// Generic XDP on the SUT would ignore the switch's packets, because it ignores all packets that a
// program has redirected (net/core/dev.c: netif_receive_generic_xdp, skb_is_redirected). A veth
// does not remove the mark of a redirect.
func (b *builder) addBridges() error {
	tx, err := emucard.Transmit(emucard.Config{Queues: b.cfg.Queues})
	if err != nil {
		return err
	}
	defer tx.Close()
	if err := b.attach(Switch, cardPort, netlink.HANDLE_MIN_INGRESS, tx, "card_tx"); err != nil {
		return err
	}
	for _, br := range []struct {
		name  string
		ports []string
		to    map[string]string // port by host
	}{
		{switchBridge, []string{portOf(Client), portOf(Noise), uplinkEnd, downlink},
			map[string]string{Client: portOf(Client), Noise: portOf(Noise), SUT: downlink}},
		{portBridge, []string{downlinkEnd, cardPort, uplink},
			map[string]string{Client: uplink, Noise: uplink, SUT: cardPort}},
	} {
		if err := b.addBridge(br.name, br.ports); err != nil {
			return err
		}
		for host, port := range br.to {
			if err := b.addStation(b.cfg.MAC(host), port); err != nil {
				return fmt.Errorf("%s of %s: %w", host, br.name, err)
			}
		}
	}
	return nil
}

// addBridge makes a bridge with these ports. The bridge neither learns addresses nor floods.
func (b *builder) addBridge(name string, ports []string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, b.cfg.MTU
	nl := b.nodes[Switch].nl
	if err := nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	return b.withLink(Switch, name, func(nl *netlink.Handle, br netlink.Link) error {
		for _, port := range ports {
			if err := b.withLink(Switch, port, func(nl *netlink.Handle, l netlink.Link) error {
				if err := nl.LinkSetMaster(l, br); err != nil {
					return err
				}
				return b.nodes[Switch].do(func() error { return deafen(port) })
			}); err != nil {
				return err
			}
		}
		return nl.LinkSetUp(br)
	})
}

// deafen stops learning and flooding on a port of a bridge. Otherwise packets would circulate: the
// two bridges and the links between them form a ring.
func deafen(port string) error {
	for _, f := range []string{"learning", "unicast_flood", "multicast_flood", "broadcast_flood"} {
		if err := os.WriteFile("/sys/class/net/"+port+"/brport/"+f, []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

// addStation tells a bridge at which of its ports a MAC address is.
func (b *builder) addStation(mac net.HardwareAddr, port string) error {
	return b.withLink(Switch, port, func(nl *netlink.Handle, l netlink.Link) error {
		return nl.NeighAdd(&netlink.Neigh{
			// With a permanent entry, this would be an address of the bridge itself.
			LinkIndex: l.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP,
			Flags: netlink.NTF_MASTER, HardwareAddr: mac,
		})
	})
}

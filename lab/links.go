// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/lane/device"
)

// The devices in the switch's namespace.
const (
	cardPort    = "p-sut"        // wire side of the SUT's port
	downlink    = "downlink"     // link toward the SUT; its qdisc is the switch's buffer
	downlinkEnd = "downlink-end" // the end of downlink at the card
	uplink      = "uplink"       // link from the SUT; its qdisc is the card's transmit arbiter
	uplinkEnd   = "uplink-end"   // the end of uplink at the switch
)

// portOf returns the name of the port by which the switch reaches a host.
func portOf(host string) string { return "p-" + host }

// devOf returns the name of a host's own port.
func devOf(host string) string {
	if host == SUT {
		return Port
	}
	return HostPort
}

// addVeth makes a veth pair with one end in the namespace of a and the other end in that of b.
func addVeth(mtu int, a, b *node, name, peer string, queues int, mac net.HardwareAddr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = name, mtu, mac
	attrs.NumTxQueues, attrs.NumRxQueues = queues, queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = peer, uint32(mtu)
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(queues), uint32(queues)
	veth.PeerNamespace = netlink.NsFd(int(b.ns))
	if err := a.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("add %s in %s: %w", name, a.host, err)
	}
	return nil
}

// addLinks makes all devices and brings them up.
func (b *builder) addLinks() error {
	sw := b.nodes[Switch]
	for _, host := range HostNames() {
		queues := 1
		if host == SUT {
			queues = b.cfg.Queues
		}
		if err := addVeth(b.cfg.MTU, b.nodes[host], sw, devOf(host), portOf(host), queues,
			b.cfg.MAC(host)); err != nil {
			return err
		}
	}
	for _, l := range [][2]string{{downlink, downlinkEnd}, {uplink, uplinkEnd}} {
		if err := addVeth(b.cfg.MTU, sw, sw, l[0], l[1], 1, nil); err != nil {
			return err
		}
	}
	// Let the port act as a card: a card segments what the stack leaves to it, and delivers packets
	// that GRO can merge. A veth's receiving end has NAPIs only if its sending end has no TSO at all
	// (veth_skb_is_eligible_for_gro). So turn off all TSO features, by prefix: new kernels add names,
	// such as tx-tcp-accecn-segmentation in Linux 6.18.
	if err := b.features(SUT, Port, true, func(name string) bool { return name == "rx-gro" }); err != nil {
		return err
	}
	if err := b.features(Switch, cardPort, false,
		func(name string) bool { return strings.HasPrefix(name, "tx-tcp") }); err != nil {
		return err
	}
	if b.cfg.Frames {
		units := func(name string) bool { return strings.HasPrefix(name, "tx-tcp") || name == "tx-udp-segmentation" }
		if err := b.features(SUT, Port, false, units); err != nil {
			return err
		}
	}
	if err := b.withLink(Noise, HostPort, func(nl *netlink.Handle, l netlink.Link) error {
		return nl.LinkSetGSOMaxSize(l, b.cfg.NoiseSegment)
	}); err != nil {
		return err
	}
	for _, host := range HostNames() {
		if err := b.setUp(host, "lo", devOf(host)); err != nil {
			return err
		}
	}
	return b.setUp(Switch, "lo", portOf(SUT), portOf(Client), portOf(Noise), downlink, downlinkEnd, uplink, uplinkEnd)
}

func (b *builder) withLink(host, dev string, f func(*netlink.Handle, netlink.Link) error) error {
	nl := b.nodes[host].nl
	l, err := nl.LinkByName(dev)
	if err == nil {
		err = f(nl, l)
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", dev, host, err)
	}
	return nil
}

func (b *builder) index(dev string) (index int, err error) {
	err = b.withLink(Switch, dev, func(_ *netlink.Handle, l netlink.Link) error {
		index = l.Attrs().Index
		return nil
	})
	return index, err
}

func (b *builder) setUp(host string, devs ...string) error {
	for _, dev := range devs {
		if err := b.withLink(host, dev, (*netlink.Handle).LinkSetUp); err != nil {
			return err
		}
	}
	return nil
}

// features turns on or off those features of a device that want accepts and that can be changed.
func (b *builder) features(host, dev string, on bool, want func(name string) bool) error {
	return b.nodes[host].do(func() error {
		c, err := ethtool.Open()
		if err != nil {
			return err
		}
		defer c.Close()
		have, err := c.Features(dev)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(have)) {
			if !want(name) || have[name].Fixed || have[name].On == on {
				continue
			}
			if err := c.SetFeature(device.Feature{Dev: dev, Name: name, On: on}); err != nil {
				return err
			}
		}
		return nil
	})
}

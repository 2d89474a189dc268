// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A setting is a sysctl that each network namespace has separately.
type setting struct{ name, value string }

// baseline returns sysctls of a tuned host. They come from the baseline in "Application Device
// Queues for Apache Traffic Server" (Intel, 2022). The lab sets only those that each network
// namespace has, not those of the whole host.
func baseline() []setting {
	return []setting{
		{"net.core.somaxconn", "4096"},
		{"net.ipv4.tcp_max_syn_backlog", "250000"},
		{"net.ipv4.tcp_rmem", "10240 87380 125829120"},
		{"net.ipv4.tcp_wmem", "10240 87380 125829120"},
	}
}

// quiet returns sysctls that prevent packets of IPv6 address configuration on the link. They also
// turn IPv6 on, because the host may have it off, and a new namespace inherits that.
func quiet() []setting {
	return []setting{
		{"net.ipv6.conf.all.disable_ipv6", "0"},
		{"net.ipv6.conf.default.disable_ipv6", "0"},
		{"net.ipv6.conf.all.accept_ra", "0"},
		{"net.ipv6.conf.default.accept_ra", "0"},
		{"net.ipv6.conf.default.accept_dad", "0"},
		{"net.ipv6.conf.default.dad_transmits", "0"},
		{"net.ipv6.conf.default.router_solicitations", "0"},
		{"net.ipv6.conf.default.autoconf", "0"},
	}
}

// mute returns sysctls that turn IPv6 off, for the switch. With IPv6, its ports would send reports
// of their multicast groups.
func mute() []setting {
	return []setting{{"net.ipv6.conf.all.disable_ipv6", "1"}, {"net.ipv6.conf.default.disable_ipv6", "1"}}
}

// setSysctls sets sysctls of the calling thread's network namespace. It ignores sysctls that do not
// exist.
func setSysctls(list []setting) error {
	for _, s := range list {
		path := filepath.Join("/proc/sys", strings.ReplaceAll(s.name, ".", "/"))
		err := os.WriteFile(path, []byte(s.value), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sysctl %s: %w", s.name, err)
		}
	}
	return nil
}

// addAddresses gives each host its addresses, and permanent neighbour entries for the other hosts.
func (b *builder) addAddresses() error {
	for _, host := range HostNames() {
		if err := b.withLink(host, devOf(host), func(h *netlink.Handle, l netlink.Link) error {
			return b.address(h, l, host)
		}); err != nil {
			return err
		}
	}
	return nil
}

// hasIPv6 reports whether the kernel has IPv6. With the boot option ipv6.disable=1, it has not.
func hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

func (b *builder) address(h *netlink.Handle, l netlink.Link, host string) error {
	own := []netip.Prefix{netip.PrefixFrom(b.cfg.IPv4(host), 24), netip.PrefixFrom(b.cfg.IPv6(host), 64)}
	if host == SUT {
		for _, addr := range b.cfg.Addresses {
			own = append(own, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	for _, p := range own {
		if p.Addr().Is6() && !hasIPv6() {
			continue
		}
		a := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(l, a); err != nil {
			return fmt.Errorf("address %v: %w", p.Addr(), err)
		}
	}
	for _, other := range HostNames() {
		if other == host {
			continue
		}
		all := []netip.Addr{b.cfg.IPv4(other), b.cfg.IPv6(other)}
		if other == SUT {
			all = append(all, b.cfg.Addresses...)
		}
		for _, addr := range all {
			if addr.Is6() && !hasIPv6() {
				continue
			}
			n := &netlink.Neigh{
				LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: addr.AsSlice(), HardwareAddr: b.cfg.MAC(other),
			}
			if err := h.NeighSet(n); err != nil {
				return fmt.Errorf("neighbour %v: %w", addr, err)
			}
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// addRoutes tells the other hosts that the SUT's further addresses are on the link.
func (b *builder) addRoutes() error {
	for _, host := range []string{Client, Noise} {
		err := b.withLink(host, devOf(host), func(h *netlink.Handle, l netlink.Link) error {
			for _, addr := range b.cfg.Addresses {
				r := &netlink.Route{LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK,
					Dst: ipNet(netip.PrefixFrom(addr, addr.BitLen()))}
				if addr.Is6() {
					r.Scope = netlink.SCOPE_UNIVERSE
				}
				if err := h.RouteAdd(r); err != nil {
					return fmt.Errorf("route to %v: %w", addr, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// setProcessors sets the CPUs that process packets. From the switch's port on, packets to the SUT
// are processed on the SUT's CPUs, where a card's interrupts would arrive. From the wire side of
// the SUT's port on, packets from the SUT are processed on the other CPUs. Without this, veth would
// process them on the sender's CPU, in software interrupt context. Receive packet steering (RPS)
// moves them.
func (b *builder) setProcessors() error {
	sut, others := device.FormatMask(b.cfg.SUTCPUs), device.FormatMask(b.cfg.OtherCPUs)
	for _, p := range []struct{ host, dev, mask string }{
		{Switch, portOf(Client), sut},
		{Switch, portOf(Noise), sut},
		{Switch, cardPort, others},
		{Switch, uplinkEnd, others},
		{Client, HostPort, others},
		{Noise, HostPort, others},
	} {
		if err := b.nodes[p.host].do(func() error { return setRPS(p.dev, p.mask) }); err != nil {
			return err
		}
	}
	return nil
}

func setRPS(dev, mask string) error {
	files, err := filepath.Glob("/sys/class/net/" + dev + "/queues/rx-*/rps_cpus")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no receive queues of %s: %w", dev, fs.ErrNotExist)
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte(mask), 0); err != nil {
			return err
		}
	}
	return nil
}

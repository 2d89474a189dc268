// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"regexp"
	"slices"

	"github.com/niclane/niclane/lane/device"
)

// The hosts of a lab. Switch has no address; it only forwards packets.
const (
	SUT    = "sut"
	Client = "client"
	Noise  = "noise"
	Switch = "switch"
)

// The names of the hosts' devices.
const (
	// Port is the SUT's port, the emulated card.
	Port = "lane0"
	// HostPort is the port of the client and of the noise source.
	HostPort = "eth0"
)

// Config describes a lab. If a field has its zero value, the default applies.
type Config struct {
	// Name distinguishes labs. It has at most 24 lower case letters, digits and "-". The network
	// namespaces are called NAME-sut and so on. Default "niclane".
	Name string `json:"name"`
	// Card is the kind of the SUT's port: CardEmulated (the default) or CardNone.
	Card string `json:"card"`
	// Queues is the number of receive and of transmit queues of the SUT's port, 1 to MaxQueues.
	// Default 8.
	Queues int `json:"queues"`
	// LinkRate is the rate of the link to the SUT in each direction, in bit/s of Ethernet
	// frames without preamble and checksum. 1 Mbit/s to 400 Gbit/s, default 500 Mbit/s.
	LinkRate uint64 `json:"linkRateBitsPerSecond"`
	// LinkBurst is the number of bytes by which the link may exceed its rate. The smaller it is, the
	// more the link behaves like a real one. At least 2,000; default 32,768.
	LinkBurst int `json:"linkBurstBytes"`
	// SwitchBuffer is the size of the buffer at the switch's port toward the SUT, in bytes. Default
	// 524,288.
	SwitchBuffer int `json:"switchBufferBytes"`
	// SwitchMark is how many bytes wait in that buffer before the switch marks packets that can carry a
	// mark (ECN, RFC 3168) as a switch does for DCTCP (RFC 8257). 0: it marks none. The kernel needs
	// sch_red.
	SwitchMark int `json:"switchMarkBytes,omitempty"`
	// SwitchFirst are the DSCPs of packets that go first at that port, before all that wait in its
	// buffer. They have a buffer of their own of the same size. The kernel needs sch_prio, and the lab a
	// card.
	SwitchFirst []int `json:"switchFirstDSCPs,omitempty"`
	// Delay is how long a frame travels on the link, in ns, in each direction. At most 1 s. The kernel
	// needs sch_netem, which counts in 64 ns.
	Delay int64 `json:"delayNs,omitempty"`
	// PacketCost and WakeupCost are a model of processors, for virtual time. Each of the SUT's receive
	// queues has a processor. It takes PacketCost for a packet, in ns, up to 1 ms, and WakeupCost before
	// the first one if it slept. Nothing else takes time. The kernel needs sch_fq, and the lab a card.
	PacketCost int64 `json:"packetCostNs,omitempty"`
	WakeupCost int64 `json:"wakeupCostNs,omitempty"`
	// Ring is the size of each of the card's transmit rings in bytes. Default 512 frames of
	// 1,514 bytes.
	Ring int `json:"ringBytes"`
	// Frames says that the SUT's port hands frames to the card's rings, not units of up to 64 KiB. Queues
	// then take turns by frames, as on a real card. It takes time for each frame, so it is for virtual
	// time, in which work takes none.
	Frames bool `json:"frames,omitempty"`
	// Rules and Contexts are the largest numbers of rules and of RSS contexts that the card can hold.
	// The defaults are also the maxima: 1024 and 16.
	Rules    int `json:"rules"`
	Contexts int `json:"contexts"`
	// Addresses are further addresses of the SUT, outside the lab's own networks. The other hosts
	// reach them over the same link. At most 256.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// MTU is the MTU of all ports, 1,280 to 9,000. Default 1500.
	MTU int `json:"mtu"`
	// NoiseSegment is gso_max_size of the noise source's port, in bytes. It limits how many bytes the
	// noise source sends at once. 2,000 to 65,536, default 16,384.
	NoiseSegment int `json:"noiseSegmentBytes"`
	// SUTCPUs do all work of the SUT and of the link toward the SUT. OtherCPUs do all work of the
	// other hosts. By default, OtherCPUs are the lower half of the online CPUs, and SUTCPUs the upper
	// half. If only one CPU is online, both are that CPU.
	SUTCPUs   []int `json:"sutCPUs"`
	OtherCPUs []int `json:"otherCPUs"`
}

// The kinds of the SUT's port.
const (
	// CardEmulated is a card that steers by rules and RSS contexts.
	CardEmulated = "emulated"
	// CardNone is a plain veth. It spreads received packets over its queues by a hash of the flow, and
	// no setting can change this.
	CardNone = "none"
)

const defaultName = "niclane"

var nameRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,23}$`)

// complete checks the config and returns it with defaults. online are the online CPUs.
func (c Config) complete(online []int) (Config, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	c.Name = cmp.Or(c.Name, defaultName)
	c.Card = cmp.Or(c.Card, CardEmulated)
	def(&c.Queues, 8)
	if c.LinkRate == 0 {
		c.LinkRate = 500e6
	}
	def(&c.LinkBurst, 32<<10)
	def(&c.SwitchBuffer, 512<<10)
	def(&c.Ring, 512*1514)
	def(&c.Rules, 1024)
	def(&c.Contexts, 16)
	def(&c.MTU, 1500)
	def(&c.NoiseSegment, 16<<10)
	if len(online) == 0 {
		return c, errors.New("no processor is online")
	}
	if c.SUTCPUs == nil {
		c.SUTCPUs = slices.Clone(online[len(online)/2:])
	}
	if c.OtherCPUs == nil {
		c.OtherCPUs = slices.Clone(online[:max(1, len(online)/2)])
	}
	var errs []error
	check := func(what string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("lab: %s: %d, want %d to %d", what, v, lo, hi))
		}
	}
	if !nameRE.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("lab: name %q: want a letter, then letters, digits and \"-\", at most 24 in all",
			c.Name))
	}
	if c.Card != CardEmulated && c.Card != CardNone {
		errs = append(errs, fmt.Errorf("lab: card %q: want %s or %s", c.Card, CardEmulated, CardNone))
	}
	check("queues", c.Queues, 1, MaxQueues)
	check("link rate in kbit/s", int(c.LinkRate/1000), 1000, MaxLinkRate/1000)
	check("link burst", c.LinkBurst, LeastBurst(c.MTU), 1<<20)
	check("switch buffer", c.SwitchBuffer, c.LinkBurst, 1<<30)
	if c.SwitchMark != 0 {
		check("switch mark", c.SwitchMark, c.MTU+14, c.SwitchBuffer)
	}
	for i, d := range c.SwitchFirst {
		check(fmt.Sprintf("DSCP %d that goes first", i), d, 0, device.MaxDSCP)
	}
	if len(c.SwitchFirst) > 0 && c.Card == CardNone {
		errs = append(errs, errors.New("lab: DSCPs that go first: want a card; without one the switch is a bridge"))
	}
	check("delay in ns", int(c.Delay), 0, 1e9)
	check("packet cost in ns", int(c.PacketCost), 0, 1e6)
	check("wake-up cost in ns", int(c.WakeupCost), 0, 1e6)
	if c.costs() && c.Card == CardNone {
		errs = append(errs, errors.New("lab: costs of packets and wake-ups: want a card, which models them"))
	}
	check("ring", c.Ring, 2*(c.MTU+14), 1<<30)
	check("rules", c.Rules, 1, 1024)
	check("contexts", c.Contexts, 1, 16)
	check("MTU", c.MTU, 1280, 9000)
	check("noise segment", c.NoiseSegment, 2000, 65536)
	if len(c.Addresses) > maxAddresses {
		errs = append(errs, fmt.Errorf("lab: %d addresses, want at most %d", len(c.Addresses), maxAddresses))
	}
	for i, a := range c.Addresses {
		if !c.Further(a) || slices.Contains(c.Addresses[:i], a) {
			errs = append(errs, fmt.Errorf("lab: address %v: want an address of one host, outside %v and %v, and each "+
				"only once", a, netip.PrefixFrom(c.IPv4(SUT), 24).Masked(), netip.PrefixFrom(c.IPv6(SUT), 64).Masked()))
		}
	}
	for _, set := range []struct {
		what string
		cpus []int
	}{{"SUT", c.SUTCPUs}, {"other", c.OtherCPUs}} {
		if len(set.cpus) == 0 {
			errs = append(errs, fmt.Errorf("lab: %s processors: none", set.what))
		}
		for _, cpu := range set.cpus {
			if !slices.Contains(online, cpu) {
				errs = append(errs, fmt.Errorf("lab: %s processor %d is not online (%v are)", set.what, cpu, online))
			}
		}
	}
	return c, errors.Join(errs...)
}

// costs reports whether the lab has a model of processors.
func (c Config) costs() bool { return c.PacketCost > 0 || c.WakeupCost > 0 }

// LeastBurst is the smallest LinkBurst with an MTU; 0: the default MTU. The smaller it is, the more
// timers a link takes. In virtual time they cost nothing.
func LeastBurst(mtu int) int { return max(2000, mtu+14) }

const maxAddresses = 256

// MaxQueues is the largest number of queues of a lab's card: an indirection table has an entry for each.
const MaxQueues = 128

// MaxLinkRate is the largest rate of a lab's link, in bit/s.
const MaxLinkRate = 400_000_000_000

// Further reports whether the SUT can have the address a beside its own.
func (c Config) Further(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		!a.IsLinkLocalUnicast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) &&
		!netip.PrefixFrom(c.IPv4(SUT), 24).Contains(a) && !netip.PrefixFrom(c.IPv6(SUT), 64).Contains(a)
}

// HostNames returns the hosts that have an address, in the order of their addresses.
func HostNames() []string { return []string{SUT, Client, Noise} }

func number(host string) int { return slices.Index(HostNames(), host) + 1 }

// Netns returns the name of a host's network namespace.
func (c Config) Netns(host string) string { return c.Name + "-" + host }

// MAC returns the MAC address of a host's port. It depends only on the lab's name and the host.
func (c Config) MAC(host string) net.HardwareAddr {
	h := fnv.New32a()
	h.Write([]byte(c.Name))
	s := h.Sum32()
	// 02 marks a locally administered address.
	return net.HardwareAddr{0x02, 0x4e, byte(s >> 16), byte(s >> 8), byte(s), byte(number(host))}
}

// IPv4 returns a host's IPv4 address. All hosts are in one /24.
func (c Config) IPv4(host string) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, 0, byte(number(host))})
}

// IPv6 returns a host's IPv6 address. All hosts are in one /64 of fd4e:6c61:6e65::/48.
func (c Config) IPv6(host string) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 0x4e, 0x6c, 0x61, 0x6e, 0x65, 15: byte(number(host))})
}

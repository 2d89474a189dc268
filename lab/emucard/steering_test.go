// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// A packet is a packet that the SUT receives.
type packet struct {
	src, dst         string
	proto            uint8
	sport, dport     uint16
	vlan, inner      uint16 // vlan is the outer tag, inner a second tag after it
	fragment         uint16
	version          uint8 // IP version in the header; 0: that of the addresses
	extension        bool  // one hop-by-hop header
	payload          int
	gsoSegs, gsoSize uint32
}

func (p packet) bytes() []byte {
	src, dst := netip.MustParseAddr(p.src), netip.MustParseAddr(p.dst)
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	if p.vlan != 0 {
		b = binary.BigEndian.AppendUint16(append(b, 0x81, 0), p.vlan)
	}
	if p.inner != 0 {
		b = binary.BigEndian.AppendUint16(append(b, 0x81, 0), p.inner)
	}
	l4 := make([]byte, 8)
	if p.proto == flow.TCP {
		l4 = make([]byte, 20)
		l4[12] = 5 << 4
	}
	binary.BigEndian.PutUint16(l4, p.sport)
	binary.BigEndian.PutUint16(l4[2:], p.dport)
	l4 = append(l4, make([]byte, p.payload)...)
	if src.Is4() {
		ip := make([]byte, 12)
		ip[0], ip[9] = 0x45, p.proto
		if p.version != 0 {
			ip[0] = p.version<<4 | 5
		}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(l4)))
		binary.BigEndian.PutUint16(ip[6:], p.fragment)
		b = append(append(b, 8, 0), ip...)
	} else {
		ip := make([]byte, 8)
		ip[0], ip[6] = 0x60, p.proto
		if p.extension {
			l4, ip[6] = append([]byte{p.proto, 0, 0, 0, 0, 0, 0, 0}, l4...), 0
		}
		binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
		b = append(append(b, 0x86, 0xdd), ip...)
	}
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	return append(b, l4...)
}

// skBuff has those fields of struct __sk_buff that a test run reads.
type skBuff struct {
	_       [164]byte
	GsoSegs uint32
	_       [8]byte
	GsoSize uint32
	_       [12]byte
}

// receive runs the card's receive program on one packet. It returns the queue whose counter has
// increased, and by how much.
func receive(t *testing.T, c *Card, p *Programs, pkt packet) (int, Counter) {
	t.Helper()
	before, _, err := c.Stats()
	must.Do(t, err)
	opts := &ebpf.RunOptions{Data: pkt.bytes(), Repeat: 1}
	if pkt.gsoSegs != 0 {
		opts.Context = skBuff{GsoSegs: pkt.gsoSegs, GsoSize: pkt.gsoSize}
	}
	if _, err := p.RX.Run(opts); err != nil {
		t.Fatal(err)
	}
	after, _, err := c.Stats()
	must.Do(t, err)
	queue, n := -1, Counter{}
	for q := range after {
		if after[q] != before[q] {
			if queue >= 0 {
				t.Fatalf("counters of queues %d and %d moved", queue, q)
			}
			queue, n = q, Counter{after[q].Packets - before[q].Packets, after[q].Bytes - before[q].Bytes}
		}
	}
	return queue, n
}

// TestToeplitz compares the hash with the test vectors of Microsoft's RSS verification suite.
func TestToeplitz(t *testing.T) {
	tests := []struct {
		name string
		pkt  packet
		want uint32
	}{
		{"tcp4", packet{src: "66.9.149.187", sport: 2794, dst: "161.142.100.80", dport: 1766, proto: flow.TCP},
			0x51ccc178},
		{"tcp4 second", packet{src: "199.92.111.2", sport: 14230, dst: "65.69.140.83", dport: 4739, proto: flow.TCP},
			0xc626b0ea},
		{"ip4", packet{src: "66.9.149.187", dst: "161.142.100.80", proto: 1}, 0x323e8fc2},
		{"tcp6", packet{src: "3ffe:2501:200:1fff::7", sport: 2794, dst: "3ffe:2501:200:3::1", dport: 1766,
			proto: flow.TCP}, 0x40207d3d},
		{"ip6", packet{src: "3ffe:2501:200:1fff::7", dst: "3ffe:2501:200:3::1", proto: 58}, 0x2cc18cd5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, p := newCard(t, small)
			// Only one entry of the table has queue 3: the one that the wanted hash selects.
			queues := table(0)
			queues[tt.want%TableSize] = 3
			must.Do(t, c.SetRSS(0, queues))
			if q, _ := receive(t, c, p, tt.pkt); q != 3 {
				t.Errorf("queue %d, want 3", q)
			}
		})
	}
}

func TestSteering(t *testing.T) {
	c, p := newCard(t, Config{Queues: 8, Rules: 16, Contexts: 4})
	if err := errors.Join(
		c.SetRSS(0, table(0)),
		c.CreateContext(1, table(6)),
		c.AddRule(Rule{5, device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}, 1, 0}),
		c.AddRule(Rule{4, device.Match{Family: 4, Protocol: "tcp", LocalPort: 80, Remote: "10.1.0.0/16"}, 0, 5}),
		c.AddRule(Rule{6, device.Match{Family: 4, Protocol: "tcp", LocalPort: 80, Remote: "10.2.3.4/32"}, 0, 4}),
		c.AddRule(Rule{7, device.Match{Family: 6, Protocol: "udp", Local: "fd00::1/128", LocalPort: 53}, 0, 3}),
		c.AddRule(Rule{8, device.Match{Family: 4, Protocol: "udp", RemotePort: 123}, 0, 2}),
		c.AddRule(Rule{9, device.Match{Family: 4, Protocol: "tcp", LocalPort: 81, VLAN: 7}, 0, 1}),
		c.AddRule(Rule{10, device.Match{Family: 4, Protocol: "tcp", Local: "10.9.9.9/32"}, 0, 7}),
	); err != nil {
		t.Fatal(err)
	}
	tcp := func(src string, dport uint16) packet {
		return packet{src: src, dst: "10.0.0.1", sport: 1000, dport: dport, proto: flow.TCP}
	}
	vlan := tcp("10.3.0.1", 81)
	vlan.vlan = 7
	otherVLAN := vlan
	otherVLAN.vlan = 8
	twoTags, innerVLAN := vlan, otherVLAN
	twoTags.inner, innerVLAN.inner = 8, 7
	ipv6 := packet{src: "fd00::2", dst: "fd00::1", sport: 1, dport: 53, proto: flow.UDP}
	extension := ipv6
	extension.extension = true
	fragment := tcp("10.3.0.1", 80)
	fragment.fragment = 100
	toAddress := fragment
	toAddress.dst = "10.9.9.9"
	version := tcp("10.3.0.1", 80)
	version.version = 5
	tests := []struct {
		name string
		pkt  packet
		want int
	}{
		{"context", tcp("10.3.0.1", 80), 6},
		{"lower location first", tcp("10.1.2.3", 80), 5},
		{"higher location after", tcp("10.2.3.4", 80), 6},
		{"other port", tcp("10.3.0.1", 8080), 0},
		{"source port is not destination port", packet{src: "10.3.0.1", dst: "10.0.0.1", sport: 80, dport: 9,
			proto: flow.TCP}, 0},
		{"other protocol", packet{src: "10.3.0.1", dst: "10.0.0.1", sport: 1, dport: 80, proto: flow.UDP}, 0},
		{"ipv6", ipv6, 3},
		{"ipv6 extension header hides the ports", extension, 0},
		{"ipv6 other address", packet{src: "fd00::2", dst: "fd00::3", sport: 1, dport: 53, proto: flow.UDP}, 0},
		{"ipv4 is not ipv6", packet{src: "10.3.0.1", dst: "10.0.0.1", sport: 1, dport: 53, proto: flow.UDP}, 0},
		{"remote port", packet{src: "10.3.0.1", dst: "10.0.0.1", sport: 123, dport: 9, proto: flow.UDP}, 2},
		{"vlan", vlan, 1},
		{"other vlan", otherVLAN, 0},
		{"two tags, outer counts", twoTags, 1},
		{"two tags, inner does not", innerVLAN, 0},
		{"no vlan", tcp("10.3.0.1", 81), 0},
		{"fragment has no ports", fragment, 0},
		{"fragment has addresses", toAddress, 7},
		{"neither IPv4 nor IPv6", version, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if q, _ := receive(t, c, p, tt.pkt); q != tt.want {
				t.Errorf("queue %d, want %d", q, tt.want)
			}
		})
	}
	if _, err := c.DeleteRule(device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}); err != nil {
		t.Fatal(err)
	}
	if q, _ := receive(t, c, p, tcp("10.3.0.1", 80)); q != 0 {
		t.Errorf("after the rule's end: queue %d, want 0", q)
	}
}

func TestCounters(t *testing.T) {
	c, p := newCard(t, small)
	base := packet{src: "10.0.0.2", dst: "10.0.0.1", sport: 1, dport: 2, proto: flow.TCP}
	gso := base
	gso.payload, gso.gsoSegs, gso.gsoSize = 3*500+10, 4, 500
	tests := []struct {
		name string
		pkt  packet
		want Counter
	}{
		{"one", base, Counter{1, 54}},
		// The GSO unit is four frames on the wire, each with 54 bytes of headers.
		{"gso", gso, Counter{4, 4*54 + 3*500 + 10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, n := receive(t, c, p, tt.pkt); n != tt.want {
				t.Errorf("got %+v, want %+v", n, tt.want)
			}
		})
	}
}

// TestLargestCard: a card of the most queues spreads over all of them, and steers to the last.
func TestLargestCard(t *testing.T) {
	c, p := newCard(t, Config{Queues: maxQueues, Rules: 1, Contexts: 1})
	queues, _, err := c.RSS(0)
	must.Do(t, err)
	if slices.Sort(queues); len(slices.Compact(queues)) != maxQueues {
		t.Errorf("RSS over %d queues, want %d", len(slices.Compact(queues)), maxQueues)
	}
	must.Do(t, c.AddRule(Rule{0, tcp4(80), 0, maxQueues - 1}))
	pkt := packet{src: "10.0.0.2", dst: "10.0.0.1", sport: 1, dport: 80, proto: flow.TCP}
	if q, _ := receive(t, c, p, pkt); q != maxQueues-1 {
		t.Errorf("queue %d, want %d", q, maxQueues-1)
	}
}

func TestTransmitCounters(t *testing.T) {
	c, p := newCard(t, small)
	pkt := packet{src: "10.0.0.2", dst: "10.0.0.1", sport: 1, dport: 2, proto: flow.TCP}
	const redirect = 7 // TC_ACT_REDIRECT
	ret, err := p.TX.Run(&ebpf.RunOptions{Data: pkt.bytes(), Repeat: 1})
	if err != nil || ret != redirect {
		t.Fatalf("got %d, %v; want %d", ret, err, redirect)
	}
	_, tx, err := c.Stats()
	must.Do(t, err)
	if diff := cmp.Diff([]Counter{{1, 54}, {}, {}, {}}, tx); diff != "" {
		t.Errorf("transmit counters (-want +got):\n%s", diff)
	}
}

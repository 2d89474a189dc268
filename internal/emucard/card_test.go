// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
)

// newCard makes a card on a BPF file system of its own.
func newCard(t *testing.T, cfg Config) (*Card, *Programs) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	if err := unix.Mount("bpf", root, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	cfg.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	cfg.Arbiter = 1 // lo; nothing is redirected in a test run
	p, err := create(root, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := open(dir(root, cfg.MAC))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, p
}

var small = Config{Queues: 4, Rules: 3, Contexts: 3, LinkRate: 1e9}

// table repeats queues to the size of an indirection table.
func table(queues ...int) []int {
	var t []int
	for len(t) < TableSize {
		t = append(t, queues...)
	}
	return t[:TableSize]
}

func TestOpenAbsent(t *testing.T) {
	_, err := open(t.TempDir() + "/card-020000000001")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestNewCard(t *testing.T) {
	c, _ := newCard(t, small)
	if got, want := c.Info(), (Info{Queues: 4, Rules: 3, Contexts: 3, LinkRate: 1e9}); got != want {
		t.Errorf("info: got %+v, want %+v", got, want)
	}
	got, configured, err := c.RSS(0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(table(0, 1, 2, 3), got); diff != "" || configured {
		t.Errorf("default table, configured %v (-want +got):\n%s", configured, diff)
	}
	if ids, err := c.Contexts(); err != nil || !slices.Equal(ids, []int{0}) {
		t.Errorf("contexts: %v, %v", ids, err)
	}
	if rules, err := c.Rules(); err != nil || len(rules) != 0 {
		t.Errorf("rules: %v, %v", rules, err)
	}
}

func TestContextsRoundTrip(t *testing.T) {
	c, _ := newCard(t, small)
	if err := c.CreateContext(2, table(2, 3)); err != nil {
		t.Fatal(err)
	}
	if err := c.SetRSS(0, table(0, 1)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int][]int{0: table(0, 1), 2: table(2, 3)} {
		got, configured, err := c.RSS(id)
		if err != nil || !configured {
			t.Errorf("context %d: configured %v, %v", id, configured, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("context %d (-want +got):\n%s", id, diff)
		}
	}
	if ids, err := c.Contexts(); err != nil || !slices.Equal(ids, []int{0, 2}) {
		t.Errorf("contexts: %v, %v; want [0 2]", ids, err)
	}
	if err := c.DeleteContext(2); err != nil {
		t.Fatal(err)
	}
	if err := c.ResetRSS(); err != nil {
		t.Fatal(err)
	}
	got, configured, err := c.RSS(0)
	if err != nil || configured {
		t.Errorf("after reset: configured %v, %v", configured, err)
	}
	if diff := cmp.Diff(table(0, 1, 2, 3), got); diff != "" {
		t.Errorf("after reset (-want +got):\n%s", diff)
	}
}

func tcp4(port uint16) device.Match {
	return device.Match{Family: 4, Protocol: "tcp", LocalPort: port}
}

func TestRefusals(t *testing.T) {
	add := func(r Rule) func(*Card) error { return func(c *Card) error { return c.AddRule(r) } }
	tests := []struct {
		name string
		do   func(*Card) error
		want error
	}{
		{"short table", func(c *Card) error { return c.SetRSS(0, []int{0, 1}) }, unix.EINVAL},
		{"queue too high in a table", func(c *Card) error { return c.SetRSS(0, table(4)) }, unix.EINVAL},
		{"negative queue in a table", func(c *Card) error { return c.SetRSS(0, table(-1)) }, unix.EINVAL},
		{"table of no context", func(c *Card) error { return c.SetRSS(2, table(0)) }, unix.ENOENT},
		{"context beyond the last", func(c *Card) error { return c.CreateContext(3, table(0)) }, unix.EINVAL},
		{"context twice", func(c *Card) error { return c.CreateContext(1, table(0)) }, unix.EEXIST},
		{"delete the default context", func(c *Card) error { return c.DeleteContext(0) }, unix.EINVAL},
		{"delete no context", func(c *Card) error { return c.DeleteContext(2) }, unix.ENOENT},
		{"delete a context in use", func(c *Card) error { return c.DeleteContext(1) }, unix.EBUSY},
		{"location taken", add(Rule{0, tcp4(81), 0, 1}), unix.EEXIST},
		{"match taken", add(Rule{1, tcp4(80), 0, 1}), unix.EEXIST},
		{"location beyond the last", add(Rule{3, tcp4(81), 0, 1}), unix.EINVAL},
		{"negative location", add(Rule{-2, tcp4(81), 0, 1}), unix.EINVAL},
		{"queue beyond the last", add(Rule{1, tcp4(81), 0, 4}), unix.EINVAL},
		{"no such context", add(Rule{1, tcp4(81), 2, 0}), unix.EINVAL},
		{"context and queue", add(Rule{1, tcp4(81), 1, 1}), unix.EINVAL},
		{"protocol", add(Rule{1, device.Match{Family: 4, Protocol: "sctp"}, 0, 1}), unix.EINVAL},
		{"delete no rule", func(c *Card) error { return c.DeleteRule(1) }, unix.ENOENT},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := newCard(t, small)
			if err := errors.Join(c.CreateContext(1, table(3)), c.AddRule(Rule{0, tcp4(80), 1, 0})); err != nil {
				t.Fatal(err)
			}
			before := dump(t, c)
			if err := tt.do(c); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if diff := cmp.Diff(before, dump(t, c)); diff != "" {
				t.Errorf("it changed something (-before +after):\n%s", diff)
			}
		})
	}
}

// contents is all of a card that can be written.
type contents struct {
	Tables     map[int][]int
	Configured map[int]bool
	Rules      []Rule
	Patterns   []string
}

func dump(t *testing.T, c *Card) contents {
	t.Helper()
	s := contents{Tables: map[int][]int{}, Configured: map[int]bool{}}
	ids, err := c.Contexts()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if s.Tables[id], s.Configured[id], err = c.RSS(id); err != nil {
			t.Fatal(err)
		}
	}
	if s.Rules, err = c.Rules(); err != nil {
		t.Fatal(err)
	}
	patterns, err := c.patterns()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range patterns {
		s.Patterns = append(s.Patterns, fmt.Sprintf("%x used %d", *p.Mask.bytes(), p.Used))
	}
	return s
}

func TestRulesRoundTrip(t *testing.T) {
	c, _ := newCard(t, Config{Queues: 4, Rules: 8, Contexts: 2})
	if err := c.CreateContext(1, table(3)); err != nil {
		t.Fatal(err)
	}
	want := []Rule{
		{0, device.Match{Family: 4, Protocol: "tcp", LocalPort: 11211}, 1, 0},
		{1, device.Match{Family: 6, Protocol: "udp", LocalPort: 53, Local: "fd00::1/128"}, 0, 2},
		{3, device.Match{Family: 4, Protocol: "tcp", Remote: "10.0.0.0/8", RemotePort: 443, VLAN: 7}, 0, 0},
		{7, device.Match{Family: 6, Protocol: "tcp"}, 1, 0},
	}
	for _, i := range []int{2, 0, 3, 1} {
		if err := c.AddRule(want[i]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	anywhere := Rule{Anywhere, tcp4(9999), 0, 1}
	if err := c.AddRule(anywhere); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Rule(anywhere.Match); r.Location != 2 || err != nil {
		t.Errorf("a rule that may go anywhere went to %d, %v; the lowest free location is 2", r.Location, err)
	}
	want = append(want, Rule{Location: 2})
	for _, r := range want {
		if err := c.DeleteRule(r.Location); err != nil {
			t.Error(err)
		}
	}
	ps, err := c.patterns()
	if err != nil || ps != [maxPatterns]pattern{} {
		t.Errorf("patterns left: %v, %v", ps, err)
	}
}

func TestCapacity(t *testing.T) {
	c, _ := newCard(t, small)
	for i := range 3 {
		if err := c.AddRule(Rule{i, tcp4(uint16(80 + i)), 0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.AddRule(Rule{Anywhere, tcp4(9999), 0, 1}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("one rule too many: %v, want %v", err, unix.ENOSPC)
	}
	if _, err := c.Rule(tcp4(9999)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a rule that was never added: %v, want %v", err, unix.ENOENT)
	}
}

func TestPatternsRunOut(t *testing.T) {
	c, _ := newCard(t, Config{Queues: 4, Rules: 64, Contexts: 1})
	rule := func(i int) Rule {
		p := netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 8+i)
		return Rule{i, device.Match{Family: 4, Protocol: "tcp", Remote: p.String()}, 0, 1}
	}
	for i := range maxPatterns {
		if err := c.AddRule(rule(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.AddRule(rule(maxPatterns)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("one pattern too many: %v, want %v", err, unix.ENOSPC)
	}
	// As a kill between the two writes of DeleteRule leaves it.
	f, _, err := encode(rule(5).Match)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.maps["card_rules"].Delete(flowKey{5, f}); err != nil {
		t.Fatal(err)
	}
	if err := c.AddRule(rule(maxPatterns)); err != nil {
		t.Errorf("after a recount: %v", err)
	}
}

// A packet to be sent to the SUT.
type packet struct {
	src, dst         string
	proto            uint8
	sport, dport     uint16
	vlan             uint16
	fragment         uint16
	payload          int
	gsoSegs, gsoSize uint32
}

func (p packet) bytes() []byte {
	src, dst := netip.MustParseAddr(p.src), netip.MustParseAddr(p.dst)
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	if p.vlan != 0 {
		b = binary.BigEndian.AppendUint16(append(b, 0x81, 0), p.vlan)
	}
	l4 := make([]byte, 8)
	if p.proto == protoTCP {
		l4 = make([]byte, 20)
		l4[12] = 5 << 4
	}
	binary.BigEndian.PutUint16(l4, p.sport)
	binary.BigEndian.PutUint16(l4[2:], p.dport)
	l4 = append(l4, make([]byte, p.payload)...)
	if src.Is4() {
		ip := make([]byte, 12)
		ip[0], ip[9] = 0x45, p.proto
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(l4)))
		binary.BigEndian.PutUint16(ip[6:], p.fragment)
		b = append(append(b, 8, 0), ip...)
	} else {
		ip := make([]byte, 8)
		ip[0], ip[6] = 0x60, p.proto
		binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
		b = append(append(b, 0x86, 0xdd), ip...)
	}
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	return append(b, l4...)
}

// skBuff is struct __sk_buff as far as a test run reads it.
type skBuff struct {
	_       [164]byte
	GsoSegs uint32
	_       [8]byte
	GsoSize uint32
	_       [12]byte
}

// receive runs the card's receive program on a packet and returns the queue
// whose counter moved, and by how much.
func receive(t *testing.T, c *Card, p *Programs, pkt packet) (int, Counter) {
	t.Helper()
	before, _, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	opts := &ebpf.RunOptions{Data: pkt.bytes(), Repeat: 1}
	if pkt.gsoSegs != 0 {
		opts.Context = skBuff{GsoSegs: pkt.gsoSegs, GsoSize: pkt.gsoSize}
	}
	if _, err := p.RX.Run(opts); err != nil {
		t.Fatal(err)
	}
	after, _, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
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

// The vectors of Microsoft's RSS verification suite.
func TestToeplitz(t *testing.T) {
	tests := []struct {
		name string
		pkt  packet
		want uint32
	}{
		{"tcp4", packet{src: "66.9.149.187", sport: 2794, dst: "161.142.100.80", dport: 1766, proto: protoTCP}, 0x51ccc178},
		{"tcp4 second", packet{src: "199.92.111.2", sport: 14230, dst: "65.69.140.83", dport: 4739, proto: protoTCP}, 0xc626b0ea},
		{"ip4", packet{src: "66.9.149.187", dst: "161.142.100.80", proto: 1}, 0x323e8fc2},
		{"tcp6", packet{src: "3ffe:2501:200:1fff::7", sport: 2794, dst: "3ffe:2501:200:3::1", dport: 1766, proto: protoTCP}, 0x40207d3d},
		{"ip6", packet{src: "3ffe:2501:200:1fff::7", dst: "3ffe:2501:200:3::1", proto: 58}, 0x2cc18cd5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, p := newCard(t, small)
			// The entry, and only that, leads to queue 3.
			queues := table(0)
			queues[tt.want%TableSize] = 3
			if err := c.SetRSS(0, queues); err != nil {
				t.Fatal(err)
			}
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
		return packet{src: src, dst: "10.0.0.1", sport: 1000, dport: dport, proto: protoTCP}
	}
	vlan := tcp("10.3.0.1", 81)
	vlan.vlan = 7
	otherVLAN := vlan
	otherVLAN.vlan = 8
	fragment := tcp("10.3.0.1", 80)
	fragment.fragment = 100
	toAddress := fragment
	toAddress.dst = "10.9.9.9"
	tests := []struct {
		name string
		pkt  packet
		want int
	}{
		{"context", tcp("10.3.0.1", 80), 6},
		{"lower location first", tcp("10.1.2.3", 80), 5},
		{"higher location after", tcp("10.2.3.4", 80), 6},
		{"other port", tcp("10.3.0.1", 8080), 0},
		{"source port is not destination port", packet{src: "10.3.0.1", dst: "10.0.0.1", sport: 80, dport: 9, proto: protoTCP}, 0},
		{"other protocol", packet{src: "10.3.0.1", dst: "10.0.0.1", sport: 1, dport: 80, proto: protoUDP}, 0},
		{"ipv6", packet{src: "fd00::2", dst: "fd00::1", sport: 1, dport: 53, proto: protoUDP}, 3},
		{"ipv6 other address", packet{src: "fd00::2", dst: "fd00::3", sport: 1, dport: 53, proto: protoUDP}, 0},
		{"ipv4 is not ipv6", packet{src: "10.3.0.1", dst: "10.0.0.1", sport: 1, dport: 53, proto: protoUDP}, 0},
		{"remote port", packet{src: "10.3.0.1", dst: "10.0.0.1", sport: 123, dport: 9, proto: protoUDP}, 2},
		{"vlan", vlan, 1},
		{"other vlan", otherVLAN, 0},
		{"no vlan", tcp("10.3.0.1", 81), 0},
		{"fragment has no ports", fragment, 0},
		{"fragment has addresses", toAddress, 7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if q, _ := receive(t, c, p, tt.pkt); q != tt.want {
				t.Errorf("queue %d, want %d", q, tt.want)
			}
		})
	}
	if err := c.DeleteRule(5); err != nil {
		t.Fatal(err)
	}
	if q, _ := receive(t, c, p, tcp("10.3.0.1", 80)); q != 0 {
		t.Errorf("after the rule's end: queue %d, want 0", q)
	}
}

func TestCounters(t *testing.T) {
	c, p := newCard(t, small)
	base := packet{src: "10.0.0.2", dst: "10.0.0.1", sport: 1, dport: 2, proto: protoTCP}
	gso := base
	gso.payload, gso.gsoSegs, gso.gsoSize = 3*500+10, 4, 500
	tests := []struct {
		name string
		pkt  packet
		want Counter
	}{
		{"one", base, Counter{1, 54}},
		// four frames on the wire, each with its 54 bytes of headers
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

func TestTransmitCounters(t *testing.T) {
	c, p := newCard(t, small)
	pkt := packet{src: "10.0.0.2", dst: "10.0.0.1", sport: 1, dport: 2, proto: protoTCP}
	const redirect = 7 // TC_ACT_REDIRECT
	ret, err := p.TX.Run(&ebpf.RunOptions{Data: pkt.bytes(), Repeat: 1})
	if err != nil || ret != redirect {
		t.Fatalf("got %d, %v; want %d", ret, err, redirect)
	}
	_, tx, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Counter{{1, 54}, {}, {}, {}}, tx); diff != "" {
		t.Errorf("transmit counters (-want +got):\n%s", diff)
	}
}

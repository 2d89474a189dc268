// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// skb is the part of struct __sk_buff (linux/bpf.h) that a test run takes and returns, up
// to wire_len.
type skb struct {
	Len, PktType, Mark, QueueMapping, Protocol, VLANPresent, VLANTCI, VLANProto uint32
	Priority                                                                    uint32
	Rest                                                                        [39]uint32
}

// load loads the classifier without attaching it.
func load(t testing.TB) (*egressObjects, *maps) {
	t.Helper()
	return loadCounting(t, true)
}

func loadCounting(t testing.TB, count bool) (*egressObjects, *maps) {
	t.Helper()
	var objs egressObjects
	loadInto(t, variant{program: EgressProgram}, count, &objs)
	return &objs, &maps{table: table[egressTarget]{inUse: objs.NlInUse, patterns: objs.NlPatterns, flows: objs.NlFlows},
		sent: objs.NlSent, tunnels: objs.NlTunnels}
}

// loadInto loads a program and its maps into the struct that bpf2go generated for it.
func loadInto(t testing.TB, v variant, count bool, objs io.Closer) {
	t.Helper()
	spec, err := v.spec()
	must.Do(t, err)
	if !count {
		must.Do(t, spec.Variables["nl_count"].Set(uint32(0)))
	}
	err = spec.LoadAndAssign(objs, nil)
	if errors.Is(err, unix.EPERM) {
		t.Skip("bpf(2): no permission")
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { objs.Close() })
}

// classify runs the classifier on a frame whose priority is before. It returns the priority that
// the frame has after.
func classify(t testing.TB, p *ebpf.Program, frame []byte, before uint32) uint32 {
	t.Helper()
	in, out := skb{Priority: before}, skb{}
	got := make([]byte, len(frame)+64)
	opts := ebpf.RunOptions{Data: frame, DataOut: got, Context: in, ContextOut: &out}
	ret, err := p.Run(&opts)
	if err != nil {
		t.Fatalf("%d bytes %x: %v", len(frame), frame, err)
	}
	if int32(ret) != -1 {
		t.Errorf("returned %d, want TC_ACT_UNSPEC", int32(ret))
	}
	if !bytes.Equal(opts.DataOut, frame) {
		t.Errorf("the frame was changed:\n%x\n%x", frame, opts.DataOut)
	}
	return out.Priority
}

func frame(etherType uint16, rest ...[]byte) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	b = binary.BigEndian.AppendUint16(b, etherType)
	return append(b, bytes.Join(rest, nil)...)
}

// tag returns the rest of a VLAN header, after its own EtherType.
func tag(tci, next uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, tci), next)
}

func ipv4(proto byte, src, dst string, fragment uint16, options int, payload []byte) []byte {
	b := make([]byte, 20+options)
	b[0], b[8], b[9] = byte(0x45+options/4), 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(payload)))
	binary.BigEndian.PutUint16(b[6:], fragment)
	copy(b[12:], netip.MustParseAddr(src).AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	return append(b, payload...)
}

func ipv6(next byte, src, dst string, payload ...[]byte) []byte {
	p := bytes.Join(payload, nil)
	b := make([]byte, 8, 40)
	b[0], b[6], b[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(p)))
	b = append(b, netip.MustParseAddr(src).AsSlice()...)
	b = append(b, netip.MustParseAddr(dst).AsSlice()...)
	return append(b, p...)
}

// ext returns an extension header whose length field is units.
func ext(next, units byte, size int) []byte {
	b := make([]byte, size)
	b[0], b[1] = next, units
	return b
}

func fragment6(next byte, offset uint16) []byte {
	b := make([]byte, 8)
	b[0] = next
	binary.BigEndian.PutUint16(b[2:], offset)
	return b
}

func ports(src, dst uint16) []byte {
	return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, src), dst), make([]byte, 16)...)
}

const (
	four, four2 = "10.9.0.1", "10.9.7.2"
	six, six2   = "fd00:9::1", "fd00:9::2"
)

// classes are the matches of the tests' entries, by class. Each match tests a different kind.
var classes = map[string]device.Match{
	"1:10": {Family: 4, Protocol: "tcp", Local: four + "/32", LocalPort: 11211},
	"1:11": {Family: 6, Protocol: "tcp", Local: six + "/128", LocalPort: 11211},
	"1:12": {Family: 4, Protocol: "udp", LocalPort: 11211},
	"1:13": {Family: 4, Protocol: "tcp", Remote: "10.9.4.0/22"},
	"1:14": {Family: 4, Protocol: "tcp", LocalPort: 80, VLAN: 7},
	"1:15": {Family: 6, Protocol: "tcp", Remote: "fd00:9::/33", RemotePort: 443},
	"1:16": {Family: 4, Protocol: "udp", Local: four + "/32", Remote: four2 + "/32", RemotePort: 53, LocalPort: 99},
	"1:18": {Family: 4, Protocol: "udp", LocalPort: 30720, LocalPortBits: 8}, // to 30975
	"1:20": {Family: 4, Protocol: "tcp", Local: four + "/32", LocalPort: 81, VLAN: 7},
	"1:19": {Family: 4, Protocol: "tcp", RemotePort: 0xc000, RemotePortBits: 4},
}

func fill(t testing.TB, m *maps) {
	t.Helper()
	for id, match := range classes {
		f, mask, err := flow.Encode(match)
		must.Do(t, err)
		class, err := tc.ParseHandle(id)
		must.Do(t, err)
		must.Do(t, m.add(f, mask, egressTarget{Class: class}))
	}
	addTunnels(t, m.tunnels)
}

// A named is a frame with the class that it belongs to, "" for none.
type named struct {
	frame []byte
	want  string
}

// frames returns the test cases by name. If arrive is true, the frames are those of packets that
// arrive, else those of packets that leave.
func frames(arrive bool) map[string]named {
	ports := func(local, remote uint16) []byte {
		if arrive {
			local, remote = remote, local
		}
		return ports(local, remote)
	}
	ipv4 := func(proto byte, local, remote string, fragment uint16, options int, payload []byte) []byte {
		if arrive {
			local, remote = remote, local
		}
		return ipv4(proto, local, remote, fragment, options, payload)
	}
	ipv6 := func(next byte, local, remote string, payload ...[]byte) []byte {
		if arrive {
			local, remote = remote, local
		}
		return ipv6(next, local, remote, payload...)
	}
	mc, other := ports(11211, 4000), ports(1, 2)
	cases := map[string]named{
		"first port of a block":   {frame(0x800, ipv4(17, four, four2, 0, 0, ports(30720, 1))), "1:18"},
		"last port of a block":    {frame(0x800, ipv4(17, four, four2, 0, 0, ports(30975, 1))), "1:18"},
		"before a block":          {frame(0x800, ipv4(17, four, four2, 0, 0, ports(30719, 1))), ""},
		"after a block":           {frame(0x800, ipv4(17, four, four2, 0, 0, ports(30976, 1))), ""},
		"block of the other side": {frame(0x800, ipv4(6, four, "192.0.2.1", 0, 0, ports(1, 50000))), "1:19"},
		"tcp4":                    {frame(0x800, ipv4(6, four, "192.0.2.1", 0, 0, mc)), "1:10"},
		"tcp4, don't fragment":    {frame(0x800, ipv4(6, four, "192.0.2.1", 0x4000, 0, mc)), "1:10"},
		"tcp4 with options":       {frame(0x800, ipv4(6, four, "192.0.2.1", 0, 40, mc)), "1:10"},
		"tcp4, another port":      {frame(0x800, ipv4(6, four, "192.0.2.1", 0, 0, other)), ""},
		"tcp4, another address":   {frame(0x800, ipv4(6, "10.9.0.3", "192.0.2.1", 0, 0, mc)), ""},
		"tcp4, swapped":           {frame(0x800, ipv4(6, "192.0.2.1", four, 0, 0, ports(4000, 11211))), ""},
		"tcp4, first fragment":    {frame(0x800, ipv4(6, four, "192.0.2.1", 0x2000, 0, mc)), ""},
		"tcp4, later fragment":    {frame(0x800, ipv4(6, four, "192.0.2.1", 0x0010, 0, mc)), ""},
		"fragment by address":     {frame(0x800, ipv4(6, four, "10.9.5.1", 0x2010, 0, mc)), "1:13"},
		"remote prefix":           {frame(0x800, ipv4(6, "192.0.2.9", "10.9.7.255", 0, 0, other)), "1:13"},
		"outside remote prefix":   {frame(0x800, ipv4(6, "192.0.2.9", "10.9.8.0", 0, 0, other)), ""},
		"udp4":                    {frame(0x800, ipv4(17, "192.0.2.9", "192.0.2.1", 0, 0, mc)), "1:12"},
		"more bits win":           {frame(0x800, ipv4(6, four, four2, 0, 0, mc)), "1:10"},
		"all fields":              {frame(0x800, ipv4(17, four, four2, 0, 0, ports(99, 53))), "1:16"},
		"all fields but one":      {frame(0x800, ipv4(17, four, four2, 0, 0, ports(99, 54))), ""},
		"icmp4":                   {frame(0x800, ipv4(1, four, "192.0.2.1", 0, 0, mc)), ""},
		"tcp6":                    {frame(0x86dd, ipv6(6, six, "2001:db8::1", mc)), "1:11"},
		"udp6":                    {frame(0x86dd, ipv6(17, six, "2001:db8::1", mc)), ""},
		"tcp6, hop by hop":        {frame(0x86dd, ipv6(0, six, "2001:db8::1", ext(6, 0, 8), mc)), "1:11"},
		"tcp6, three extensions": {frame(0x86dd,
			ipv6(0, six, "2001:db8::1", ext(43, 1, 16), ext(60, 0, 8), ext(6, 2, 24), mc)), "1:11"},
		"tcp6, authenticated":   {frame(0x86dd, ipv6(51, six, "2001:db8::1", ext(6, 4, 24), mc)), "1:11"},
		"tcp6, atomic fragment": {frame(0x86dd, ipv6(44, six, "2001:db8::1", fragment6(6, 0), mc)), "1:11"},
		"tcp6, first fragment":  {frame(0x86dd, ipv6(44, six, "2001:db8::1", fragment6(6, 1), mc)), ""},
		"tcp6, later fragment":  {frame(0x86dd, ipv6(44, six, "2001:db8::1", fragment6(6, 0x0100), mc)), ""},
		"tcp6, seven extensions": {frame(0x86dd, ipv6(60, six, "2001:db8::1", bytes.Repeat(ext(60, 0, 8), 6),
			ext(6, 0, 8), mc)), ""},
		"tcp6, remote":   {frame(0x86dd, ipv6(6, "2001:db8::1", six2, ports(1, 443))), "1:15"},
		"no next header": {frame(0x86dd, ipv6(59, six, "2001:db8::1", mc)), ""},
		"vlan": {frame(0x8100, tag(7, 0x800), ipv4(6, "192.0.2.9", "192.0.2.1", 0, 0, ports(80, 1))),
			"1:14"},
		"vlan with priority bits": {frame(0x8100, tag(0xe007, 0x800),
			ipv4(6, "192.0.2.9", "192.0.2.1", 0, 0, ports(80, 1))), "1:14"},
		"another vlan": {frame(0x8100, tag(8, 0x800), ipv4(6, "192.0.2.9", "192.0.2.1", 0, 0, ports(80, 1))),
			""},
		"vlan wanted, none there": {frame(0x800, ipv4(6, "192.0.2.9", "192.0.2.1", 0, 0, ports(80, 1))), ""},
		"any vlan will do":        {frame(0x8100, tag(8, 0x800), ipv4(6, four, "192.0.2.1", 0, 0, mc)), "1:10"},
		"two tags, outer counts": {frame(0x88a8, tag(7, 0x8100), tag(9, 0x800),
			ipv4(6, "192.0.2.9", "192.0.2.1", 0, 0, ports(80, 1))), "1:14"},
		"two tags, inner does not": {frame(0x88a8, tag(9, 0x8100), tag(7, 0x800),
			ipv4(6, "192.0.2.9", "192.0.2.1", 0, 0, ports(80, 1))), ""},
		"three tags": {frame(0x88a8, tag(7, 0x8100), tag(7, 0x8100), tag(7, 0x800),
			ipv4(6, four, "192.0.2.1", 0, 0, mc)), ""},
		"arp":                {frame(0x806, make([]byte, 46)), ""},
		"ports cut off":      {frame(0x800, ipv4(6, four, "10.9.5.1", 0, 0, mc[:2])), "1:13"},
		"wrong version":      {frame(0x800, ipv6(6, six, "2001:db8::1", mc)), ""},
		"extension cut off":  {frame(0x86dd, ipv6(60, six, six2, []byte{6, 0})), ""},
		"extension too long": {frame(0x86dd, ipv6(60, six, "2001:db8::1", ext(6, 255, 8), mc)), ""},
	}
	for name, c := range tunnelFrames(arrive) {
		cases[name] = c
	}
	return cases
}

func TestClassify(t *testing.T) {
	objs, m := load(t)
	fill(t, m)
	for name, tt := range frames(false) {
		t.Run(name, func(t *testing.T) {
			want := uint32(77)
			if tt.want != "" {
				var err error
				if want, err = tc.ParseHandle(tt.want); err != nil {
					t.Fatal(err)
				}
			}
			if got := classify(t, objs.NiclaneEgress, tt.frame, 77); got != want {
				t.Errorf("priority %s, want %s", tc.FormatHandle(got), tc.FormatHandle(want))
			}
			if got, ok := expected(tt.frame, classes); ok != (tt.want != "") || ok && got != tt.want {
				t.Errorf("the reference says %q, want %q", got, tt.want)
			}
		})
	}
}

// expected returns the class that the reference finds for a frame that leaves.
func expected(b []byte, entries map[string]device.Match) (class string, ok bool) {
	_, class, ok = looked(b, false, entries)
	return class, ok
}

// best returns the entry that matches a flow. If several match, it returns the one that compares
// the most bits.
func best[K comparable](f flow.Flow, entries map[K]device.Match) (k K, ok bool) {
	most := uint32(0)
	for id, m := range entries {
		_, mask, err := flow.Encode(m)
		if err == nil && matches(m, f) && rank(mask) > most {
			k, most, ok = id, rank(mask), true
		}
	}
	return k, ok
}

// FuzzClassify compares the classifier with the reference in Go.
func FuzzClassify(f *testing.F) {
	mc := ports(11211, 4000)
	for _, b := range [][]byte{
		frame(0x800, ipv4(6, four, four2, 0, 0, mc)),
		frame(0x8100, tag(7, 0x800), ipv4(6, four, four2, 0, 8, ports(80, 1))),
		frame(0x88a8, tag(7, 0x8100), tag(9, 0x86dd), ipv6(0, six, six2, ext(44, 1, 16), fragment6(6, 0), mc)),
		frame(0x86dd, ipv6(51, six, six2, ext(60, 1, 12), ext(6, 0, 8), ports(1, 443))),
		vxlan(frame(0x800, ipv4(6, four, four2, 0, 0, mc))),
		geneve(2, 0x86dd, ipv6(6, six, six2, mc)),
	} {
		f.Add(b)
	}
	objs, m := load(f)
	fill(f, m)
	f.Fuzz(func(t *testing.T, b []byte) {
		compare(t, objs.NiclaneEgress, b)
	})
}

func compare(t *testing.T, p *ebpf.Program, b []byte) {
	t.Helper()
	if len(b) < 15 || len(b) > 1500 {
		return
	}
	// A test run refuses frames that end within the network header, unless the header is
	// behind a VLAN tag.
	if least := map[uint16]int{0x0800: 34, 0x86dd: 54}[binary.BigEndian.Uint16(b[12:])]; len(b) < least {
		return
	}
	want := uint32(0)
	if id, ok := expected(b, classes); ok {
		var err error
		if want, err = tc.ParseHandle(id); err != nil {
			t.Fatal(err)
		}
	}
	if got := classify(t, p, b, 0); got != want {
		t.Errorf("%x: priority %s, the reference says %s", b, tc.FormatHandle(got), tc.FormatHandle(want))
	}
}

// TestRandomPackets does what the fuzzer does, with frames that get deeper into the
// parser than random bytes. The frames are the same in each run.
func TestRandomPackets(t *testing.T) {
	objs, m := load(t)
	fill(t, m)
	r := rand.New(rand.NewPCG(1, 2))
	hits, inside := 0, 0
	for range 10000 {
		b := randomFrame(r)
		compare(t, objs.NiclaneEgress, b)
		f, _, ok := looked(b, false, classes)
		if outer, _, _ := reference(b); ok && outer != f {
			inside++
		} else if ok {
			hits++
		}
	}
	if hits < 500 || inside < 50 {
		t.Errorf("only %d of 10000 frames match anything, and %d by the packet inside", hits, inside)
	}
}

func randomFrame(r *rand.Rand) []byte {
	b := plainFrame(r)
	switch r.IntN(4) {
	case 0:
		b = vxlan(b)
	case 1:
		b = geneve(r.IntN(64), 0x6558, b)
	}
	if r.IntN(4) == 0 {
		b[r.IntN(len(b))] ^= byte(1 << r.IntN(8))
	}
	if r.IntN(8) == 0 {
		b = b[:15+r.IntN(len(b)-15)]
	}
	return b
}

func plainFrame(r *rand.Rand) []byte {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	port := func() uint16 { return []uint16{11211, 80, 443, 53, 99, uint16(r.Uint32())}[r.IntN(6)] }
	proto := []byte{6, 17, 6, 17, 1}[r.IntN(5)]
	l4 := ports(port(), port())
	etherType := uint16(0x800)
	var l3 []byte
	if r.IntN(2) == 0 {
		l3 = ipv4(proto, pick(four, four2, "10.9.5.9"), pick(four, four2, "192.0.2.1"),
			uint16(r.IntN(4))<<13|uint16(r.IntN(20)/19), r.IntN(11)*4, l4)
	} else {
		etherType = 0x86dd
		headers, next := [][]byte{l4}, proto
		for range r.IntN(8) {
			kind := []byte{0, 43, 44, 51, 60}[r.IntN(5)]
			h := fragment6(next, uint16(r.IntN(10)/9))
			if kind != 44 {
				h = ext(next, byte(r.IntN(3)), 8)
				size := (int(h[1]) + 1) * 8
				if kind == 51 {
					size = (int(h[1]) + 2) * 4
				}
				h = ext(next, h[1], size)
			}
			headers, next = append([][]byte{h}, headers...), kind
		}
		l3 = ipv6(next, pick(six, six2), pick(six, six2, "2001:db8::1"), headers...)
	}
	for range r.IntN(3) {
		l3 = append(tag(uint16(r.IntN(3)+6), etherType), l3...)
		etherType = 0x8100
	}
	return frame(etherType, l3)
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// put adds the entry of a match.
func put(t testing.TB, m *maps, e device.FilterEntry) {
	t.Helper()
	target, err := encodeTarget(e)
	must.Do(t, err)
	f, mask, err := flow.Encode(e.Match)
	must.Do(t, err)
	must.Do(t, m.add(f, mask, target))
}

// left runs the classifier on a frame, and returns the frame and the skb as they leave.
func left(t testing.TB, p *ebpf.Program, b []byte, in skb) ([]byte, skb) {
	t.Helper()
	var out skb
	opts := ebpf.RunOptions{Data: b, DataOut: make([]byte, len(b)+64), Context: in, ContextOut: &out}
	ret, err := p.Run(&opts)
	if err != nil {
		t.Fatalf("%d bytes %x: %v", len(b), b, err)
	}
	if int32(ret) != -1 {
		t.Errorf("returned %d, want TC_ACT_UNSPEC", int32(ret))
	}
	return opts.DataOut, out
}

// ipAt returns the offset of a frame's outermost IP header.
func ipAt(b []byte) int {
	off := 12
	for b[off] == 0x81 || b[off] == 0x88 {
		off += 4
	}
	return off + 2
}

// withClass returns a copy of an IP frame with another traffic class (DSCP and ECN). An IPv4
// header gets a new checksum, which is the sum over the whole header.
func withClass(b []byte, class byte) []byte {
	b = bytes.Clone(b)
	ip := b[ipAt(b):]
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip, binary.BigEndian.Uint16(ip)&0xf00f|uint16(class)<<4)
		return b
	}
	ip[1], ip[10], ip[11] = class, 0, 0
	sum := uint32(0)
	for i := 0; i < int(ip[0]&15)*4; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return b
}

// marked are frames of the lanes in markedLanes, by what is special about them.
func marked() map[string][]byte {
	mc := ports(11211, 4000)
	inner := withClass(frame(0x800, ipv4(6, four, four2, 0, 0, mc)), 0x28)[14:]
	return map[string][]byte{
		"IPv4":                   frame(0x800, ipv4(6, four, "192.0.2.1", 0x4000, 0, mc)),
		"IPv4 with options":      frame(0x800, ipv4(6, four, "192.0.2.1", 0, 40, mc)),
		"IPv4, a later fragment": frame(0x800, ipv4(6, four, "10.9.5.1", 0x2010, 0, mc)),
		"IPv4 around IPv4":       frame(0x800, ipv4(17, four, "192.0.2.1", 0, 0, append(mc, inner...))),
		"IPv4 with a tag":        frame(0x8100, tag(7, 0x800), ipv4(6, four, "192.0.2.1", 0, 0, mc)),
		"IPv4 with two tags":     frame(0x88a8, tag(7, 0x8100), tag(9, 0x800), ipv4(6, four, "192.0.2.1", 0, 0, mc)),
		"IPv6":                   frame(0x86dd, ipv6(6, six, "2001:db8::1", mc)),
		"IPv6 with an extension": frame(0x86dd, ipv6(0, six, "2001:db8::1", ext(6, 0, 8), mc)),
		"IPv6 with a tag":        frame(0x8100, tag(7, 0x86dd), ipv6(6, six, "2001:db8::1", mc)),
		"IPv6 with two tags":     frame(0x88a8, tag(7, 0x8100), tag(9, 0x86dd), ipv6(6, six, "2001:db8::1", mc)),
	}
}

func markedLanes(dscp string) []device.FilterEntry {
	return []device.FilterEntry{
		{Match: device.Match{Family: 4, Protocol: "tcp", Local: four + "/32", LocalPort: 11211}, DSCP: dscp},
		{Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 11211}, DSCP: dscp},
		{Match: device.Match{Family: 6, Protocol: "tcp", LocalPort: 11211}, Priority: "1:10", DSCP: dscp},
		{Match: device.Match{Family: 4, Protocol: "tcp", Remote: "10.9.5.0/24"}, Queues: []int{2, 3}, DSCP: dscp},
	}
}

// TestDSCP: packets of a lane get its DSCP in the outermost IP header, and a right checksum. ECN
// and all other bits stay.
func TestDSCP(t *testing.T) {
	for _, dscp := range []string{"cs0", "le", "ef", "63"} {
		objs, m := load(t)
		for _, e := range markedLanes(dscp) {
			put(t, m, e)
		}
		value, err := device.ParseDSCP(dscp)
		must.Do(t, err)
		r := rand.New(rand.NewPCG(1, 2))
		for name, b := range marked() {
			for class := range 256 {
				at := ipAt(b)
				// Other contents lead to each case of the checksum's arithmetic.
				binary.BigEndian.PutUint16(b[at+4:], uint16(r.Uint32()))
				in := withClass(b, byte(class))
				want := withClass(b, byte(value<<2|class&3))
				if got, _ := left(t, objs.NiclaneEgress, in, skb{}); !bytes.Equal(got, want) {
					t.Fatalf("%s: class %#x, DSCP %s (-want +got):\n%x\n%x", name, class, dscp, want, got)
				}
			}
		}
		objs.Close()
	}
}

// TestNoDSCP: the classifier changes no packet of a lane without a DSCP, of no lane, or to a
// network without lanes.
func TestNoDSCP(t *testing.T) {
	objs, m := load(t)
	put(t, m, device.FilterEntry{Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}, Priority: "1:10"})
	put(t, m, device.FilterEntry{Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 81}, DSCP: "ef"})
	put(t, m, device.FilterEntry{Match: device.Match{Family: 4, Remote: "10.2.0.0/16"}})
	for name, b := range map[string][]byte{
		"lane":    frame(0x800, ipv4(6, four, four2, 0, 0, ports(80, 1))),
		"no lane": frame(0x800, ipv4(6, four, four2, 0, 0, ports(82, 1))),
		"network": frame(0x800, ipv4(6, four, "10.2.3.4", 0, 0, ports(81, 1))),
		"ARP":     frame(0x806, make([]byte, 46)),
	} {
		if name != "ARP" {
			b = withClass(b, 0x2b)
		}
		if got, _ := left(t, objs.NiclaneEgress, b, skb{}); !bytes.Equal(got, b) {
			t.Errorf("%s: became\n%x, was\n%x", name, got, b)
		}
	}
}

// TestUnshaped: packets to an unshaped network leave as packets of no lane do, whatever entry they
// match otherwise.
func TestUnshaped(t *testing.T) {
	objs, m := load(t)
	all := device.Match{Family: 4, Protocol: "tcp", VLAN: 7, Local: four + "/32", LocalPort: 80, Remote: "10.2.3.4/32",
		RemotePort: 4000}
	for i, match := range []device.Match{
		all,
		{Family: 4, Protocol: "tcp", Remote: "10.3.0.0/16"}, // the same prefix length as the network's
		{Family: 6, Protocol: "tcp", Local: six + "/128", LocalPort: 80},
		{Family: 4, Protocol: "udp", LocalPort: 80},
	} {
		put(t, m, device.FilterEntry{Match: match, Priority: fmt.Sprintf("1:%x", 0x10+i), Queues: []int{4}})
	}
	rest, err := encodeRest(device.FilterDefault{Queues: []int{1}, Lanes: []int{8}})
	must.Do(t, err)
	must.Do(t, objs.NlDefault.Put(uint32(0), rest))
	packets := map[string][]byte{
		"exact":  frame(0x8100, tag(7, 0x800), ipv4(6, four, "10.2.3.4", 0, 0, ports(80, 4000))),
		"prefix": frame(0x800, ipv4(6, four, "10.3.0.1", 0, 0, ports(1, 2))),
		"IPv6":   frame(0x86dd, ipv6(6, six, "fd00:2::5", ports(80, 1))),
		"UDP":    frame(0x800, ipv4(17, four, "10.2.0.1", 0, 0, ports(80, 1))),
		"other":  frame(0x800, ipv4(17, four, "10.4.0.1", 0, 0, ports(80, 1))),
	}
	// A test run does not return the queue, so the test reads the counters.
	sent := func() map[[2]int]uint64 {
		all, err := m.counted([]int{0, 0x10, 0x11, 0x12, 0x13})
		must.Do(t, err)
		n := map[[2]int]uint64{}
		for _, c := range all {
			n[[2]int{c.Row, c.Queue}] = c.Packets
		}
		return n
	}
	check := func(when string, want map[string]uint32) {
		t.Helper()
		for name, b := range packets {
			counted := sent()
			at := [2]int{int(want[name] & 0xffff), 1}
			if want[name] != 0 {
				at[1] = 4
			}
			counted[at]++
			if _, out := left(t, objs.NiclaneEgress, b, skb{Priority: 8}); out.Priority != want[name] {
				t.Errorf("%s: %s has priority %#x, want %#x", when, name, out.Priority, want[name])
			}
			if diff := cmp.Diff(counted, sent()); diff != "" {
				t.Errorf("%s: %s, counted by row and queue (-want +got):\n%s", when, name, diff)
			}
		}
	}
	check("before", map[string]uint32{"exact": 0x10010, "prefix": 0x10011, "IPv6": 0x10012, "UDP": 0x10013,
		"other": 0x10013})
	networks := []device.FilterEntry{
		{Match: device.Match{Family: 4, Remote: "10.2.0.0/16"}}, {Match: device.Match{Family: 6, Remote: "fd00:2::/48"}},
		{Match: device.Match{Family: 4, Remote: "10.3.0.0/16"}},
	}
	for _, e := range networks {
		put(t, m, e)
	}
	check("with networks", map[string]uint32{"other": 0x10013})
	for _, e := range networks[1:] {
		f, mask, err := flow.Encode(e.Match)
		must.Do(t, err)
		must.Do(t, m.remove(f, mask))
	}
	check("with one network", map[string]uint32{"prefix": 0x10011, "IPv6": 0x10012, "other": 0x10013})
}

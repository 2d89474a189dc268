// SPDX-License-Identifier: Apache-2.0

package count_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/hostfs"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/count"
	"github.com/niclane/niclane/lane/device"
)

const queues = 4

var lanes = []count.Lane{
	{Class: 0x10010, Matches: []device.Match{
		{Family: 4, Protocol: "tcp", Local: "10.9.0.1/32", LocalPort: 80},
		{Family: 6, Protocol: "tcp", LocalPort: 80},
	}},
	{Matches: []device.Match{{Family: 4, Protocol: "udp", Remote: "10.9.0.0/24", VLAN: 7}}},
	// Less specific than the first: packets that match both belong to the first.
	{Matches: []device.Match{{Family: 4, Protocol: "tcp", LocalPort: 80}}},
	// Fragments of the first and the second lane's packets. The second lane has no ports, so
	// its fragments remain its own.
	{Fragments: true, Matches: []device.Match{{Family: 4, Protocol: "tcp", Local: "10.9.0.1/32", LocalPort: 80},
		{Family: 4, Protocol: "udp", Remote: "10.9.0.0/24", VLAN: 7}}},
}

// A packet describes a packet that this host sends. For a packet that this host receives, frame
// exchanges local and remote.
type packet struct {
	name          string
	family        int
	protocol      byte
	local, remote string
	port, rport   uint16
	vlan          uint16
	data          int
	fragment      uint16 // offset and flags of the IPv4 header
	extension     bool   // an IPv6 hop-by-hop header
	inner         uint16 // a second tag
	version       byte   // version in the header, if it differs from family
	vxlan         bool   // inside a VXLAN packet
	lane          int
}

var packets = []packet{
	{name: "TCP of the first lane", family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80, rport: 999,
		data: 100, lane: 1},
	{name: "TCP without data", family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80, rport: 999,
		lane: 1},
	{name: "TCP of IPv6", family: 6, protocol: 6, local: "fd00::1", remote: "fd00::2", port: 80, rport: 999, data: 10,
		lane: 1},
	{name: "TCP behind an extension header", family: 6, protocol: 6, local: "fd00::1", remote: "fd00::2", port: 80,
		rport: 999, data: 10, extension: true, lane: 1},
	{name: "TCP of another address", family: 4, protocol: 6, local: "10.9.0.9", remote: "10.9.0.2", port: 80,
		rport: 999, data: 100, lane: 3},
	{name: "TCP of another port", family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 81, rport: 80,
		data: 100},
	{name: "UDP in the VLAN", family: 4, protocol: 17, local: "10.1.1.1", remote: "10.9.0.2", port: 5, rport: 6,
		vlan: 7, lane: 2},
	{name: "UDP in another VLAN", family: 4, protocol: 17, local: "10.1.1.1", remote: "10.9.0.2", port: 5, rport: 6,
		vlan: 8},
	{name: "UDP in no VLAN", family: 4, protocol: 17, local: "10.1.1.1", remote: "10.9.0.2", port: 5, rport: 6},
	{name: "a fragment has no ports", family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80,
		rport: 999, fragment: 0x2000, data: 100, lane: 4},
	{name: "a fragment of an address that is no lane's", family: 4, protocol: 6, local: "10.9.0.9", remote: "10.9.0.2",
		port: 80, rport: 999, fragment: 0x2000, data: 100},
	{name: "a fragment of a lane without ports", family: 4, protocol: 17, local: "10.1.1.1", remote: "10.9.0.2",
		vlan: 7, fragment: 0x20, data: 100, lane: 2},
	{name: "TCP behind two tags", family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80, rport: 999,
		vlan: 7, inner: 8, data: 100, lane: 1},
	{name: "UDP behind two tags, the outer one counts", family: 4, protocol: 17, local: "10.1.1.1", remote: "10.9.0.2",
		port: 5, rport: 6, vlan: 8, inner: 7},
	{name: "of another version than its EtherType", family: 4, version: 5, protocol: 6, local: "10.9.0.1",
		remote: "10.9.0.2", port: 80, rport: 999, data: 100},
	{name: "ICMP", family: 4, protocol: 1, local: "10.9.0.1", remote: "10.9.0.2", port: 80},
	{name: "not IP"},
	{name: "TCP in VXLAN", family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80, rport: 999,
		data: 100, vxlan: true, lane: 1},
	{name: "TCP without data in VXLAN", family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80,
		rport: 999, vxlan: true, lane: 1},
	{name: "a fragment in VXLAN", family: 4, protocol: 6, local: "10.9.0.1", remote: "10.9.0.2", port: 80, rport: 999,
		fragment: 0x2000, data: 100, vxlan: true, lane: 4},
	{name: "in VXLAN, of a lane without local addresses", family: 4, protocol: 6, local: "10.9.0.9",
		remote: "10.9.0.2", port: 80, rport: 999, data: 100, vxlan: true},
}

// frame returns the packet's frame, sent by this host or to it.
func (p packet) frame(receive bool) []byte {
	b := p.plain(receive)
	if !p.vxlan {
		return b
	}
	udp := slices.Concat([]byte{0x9c, 0x40, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0}, b)
	outer := slices.Concat(b[:12], []byte{8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2},
		udp)
	binary.BigEndian.PutUint16(outer[16:], uint16(20+len(udp)))
	return outer
}

func (p packet) plain(receive bool) []byte {
	local, remote := p.local, p.remote
	port, rport := p.port, p.rport
	if receive {
		local, remote, port, rport = remote, local, rport, port
	}
	b := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1}
	if p.vlan != 0 {
		b = binary.BigEndian.AppendUint16(b, unix.ETH_P_8021Q)
		b = binary.BigEndian.AppendUint16(b, 0x6000|p.vlan) // the tag has a priority too
	}
	if p.inner != 0 {
		b = binary.BigEndian.AppendUint16(b, unix.ETH_P_8021Q)
		b = binary.BigEndian.AppendUint16(b, p.inner)
	}
	l4 := make([]byte, 20+p.data)
	binary.BigEndian.PutUint16(l4, port)
	binary.BigEndian.PutUint16(l4[2:], rport)
	l4[12] = 5 << 4
	switch p.family {
	case 4:
		b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, p.protocol
		if p.version != 0 {
			h[0] = p.version<<4 | 5
		}
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(l4)))
		binary.BigEndian.PutUint16(h[6:], p.fragment)
		copy(h[12:], netip.MustParseAddr(local).AsSlice())
		copy(h[16:], netip.MustParseAddr(remote).AsSlice())
		return append(append(b, h...), l4...)
	case 6:
		b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IPV6)
		h := make([]byte, 40)
		h[0], h[6], h[7] = 0x60, p.protocol, 64
		if p.extension {
			h[6] = 0
			l4 = append([]byte{p.protocol, 0, 1, 4, 0, 0, 0, 0}, l4...)
		}
		binary.BigEndian.PutUint16(h[4:], uint16(len(l4)))
		copy(h[8:], netip.MustParseAddr(local).AsSlice())
		copy(h[24:], netip.MustParseAddr(remote).AsSlice())
		return append(append(b, h...), l4...)
	}
	return append(binary.BigEndian.AppendUint16(b, 0x88b5), l4...) // EtherType for experiments
}

// TestLaneOf: LaneOf returns the lane in which the programs count a flow.
func TestLaneOf(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		w := open(t)
		for _, p := range packets {
			if p.protocol != 6 && p.protocol != 17 || p.fragment != 0 || p.version != 0 || p.vxlan {
				continue
			}
			whole := map[int]string{4: "/32", 6: "/128"}[p.family]
			m := device.Match{Family: p.family, Protocol: map[byte]string{6: "tcp", 17: "udp"}[p.protocol],
				VLAN:  int(p.vlan),
				Local: p.local + whole, LocalPort: p.port, Remote: p.remote + whole, RemotePort: p.rport}
			if got, err := w.LaneOf(m); err != nil || got != p.lane {
				t.Errorf("%s: %d (%v), want %d", p.name, got, err, p.lane)
			}
		}
		if _, err := w.LaneOf(device.Match{Family: 5}); err == nil {
			t.Error("family 5: not refused")
		}
	})
}

// onQueue makes all packets that dev sends leave by one queue.
func onQueue(t *testing.T, dev string, queue int) {
	t.Helper()
	fs, err := hostfs.Open(nil)
	must.Do(t, err)
	defer fs.Close()
	for q := range queues {
		f := device.File{Path: fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_cpus", dev, q),
			Format: device.FileCPUMask, Value: "0"}
		old := f
		if q == queue {
			f.Value = "ffffffff"
		}
		if err := fs.Write(old, f); err != nil && q == queue {
			f.Value = "3"
			must.Do(t, fs.Write(old, f))
		}
	}
}

func open(t *testing.T) *count.Watcher {
	t.Helper()
	link := vethtest.Interface(t, vethtest.Dev)
	w, err := count.Open(&device.Device{Name: link.Name, Index: link.Index, Driver: "veth", RxQueues: queues,
		TxQueues: queues, Tunnels: []device.Tunnels{{Tunnels: []device.Tunnel{{Protocol: "vxlan", Port: 4789}}}}}, lanes)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	must.Do(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

type place struct{ lane, column int }

// byPlace returns the packets by lane and column: the number of all, and the number of those
// without data.
func byPlace(cells []count.Cell) (all, bare map[place]uint64) {
	all, bare = map[place]uint64{}, map[place]uint64{}
	for _, c := range cells {
		at := place{c.Lane, c.Column}
		all[at] = c.Packets
		if c.Bare > 0 {
			bare[at] = c.Bare
		}
	}
	return all, bare
}

func counts(t *testing.T, w *count.Watcher) count.Counts {
	t.Helper()
	c, err := w.Counts()
	must.Do(t, err)
	return c
}

// TestReceive: each packet is counted for its lane, in the queue in which it arrived.
func TestReceive(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		onQueue(t, vethtest.Peer, 2)
		w := open(t)
		noise, _ := byPlace(counts(t, w).Received)
		want, sent := maps.Clone(noise), uint64(0)
		for _, p := range packets {
			vethtest.SendFrame(t, vethtest.Peer, 0, 1, p.frame(true))
			want[place{p.lane, 2}]++
			sent++
		}
		// The kernel's own neighbour discovery belongs to no lane and may add packets.
		delete(want, place{0, 2})
		var got, bare map[place]uint64
		vethtest.Until(t, "all packets received", func() bool {
			got, bare = byPlace(counts(t, w).Received)
			total := uint64(0)
			for _, n := range got {
				total += n
			}
			return total >= sent && got[place{0, 2}] >= 8
		})
		if got[place{0, 2}] < 8 {
			t.Errorf("%d packets of no lane, want at least 8", got[place{0, 2}])
		}
		delete(got, place{0, 2})
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if bare[place{1, 2}] != 2 || len(bare) != 1 {
			t.Errorf("without data: %v, want two of lane 1", bare)
		}
	})
}

// TestTransmit: each packet is counted for its lane, in the queue and the class in which it
// leaves.
func TestTransmit(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		onQueue(t, vethtest.Dev, 3)
		w := open(t)
		for _, p := range packets {
			// The class of the first lane, or one of no lane.
			priority := 0x10099
			if p.lane == 1 || p.name == "ICMP" {
				priority = 0x10010
			}
			vethtest.SendFrame(t, vethtest.Dev, priority, 1, p.frame(false))
		}
		c := counts(t, w)
		got, _ := byPlace(c.Sent)
		if n := got[place{0, 3}]; n < 8 {
			t.Errorf("%d packets of no lane, want at least 8", n)
		}
		delete(got, place{0, 3})
		if diff := cmp.Diff(map[place]uint64{{1, 3}: 7, {2, 3}: 2, {3, 3}: 1, {4, 3}: 2}, got,
			cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		classed, _ := byPlace(c.Classed)
		delete(classed, place{0, 0})
		if diff := cmp.Diff(map[place]uint64{{1, 1}: 7, {0, 1}: 1, {2, 0}: 2, {3, 0}: 1, {4, 0}: 2}, classed,
			cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("class (-want +got):\n%s", diff)
		}
	})
}

// TestByClass: if only the class identifies a lane's packets, all packets of the class belong
// to the lane, except those that match another lane. OpenTransmit counts no received packets.
func TestByClass(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		onQueue(t, vethtest.Dev, 3)
		link := vethtest.Interface(t, vethtest.Dev)
		w, err := count.OpenTransmit(&device.Device{Name: link.Name, Index: link.Index, Driver: "veth",
			RxQueues: queues, TxQueues: queues},
			append(slices.Clone(lanes), count.Lane{Class: 8, ByClass: true}, count.Lane{Class: 9}))
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		must.Do(t, err)
		defer w.Close()
		tcp, icmp := packets[0], packets[slices.IndexFunc(packets, func(p packet) bool { return p.name == "ICMP" })]
		for _, priority := range []int{8, 9} {
			vethtest.SendFrame(t, vethtest.Dev, priority, 1, tcp.frame(false))
			vethtest.SendFrame(t, vethtest.Dev, priority, 1, icmp.frame(false))
			vethtest.SendFrame(t, vethtest.Peer, priority, 1, tcp.frame(true))
		}
		sent, err := w.Sent()
		must.Do(t, err)
		got, _ := byPlace(sent)
		if got[place{0, 3}] < 1 {
			t.Errorf("sent %v: the packet of no lane, in a lane's class, is not there", got)
		}
		delete(got, place{0, 3})
		if diff := cmp.Diff(map[place]uint64{{1, 3}: 2, {5, 3}: 1}, got, cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		classed, _ := byPlace(counts(t, w).Classed)
		delete(classed, place{0, 0})
		if diff := cmp.Diff(map[place]uint64{{1, 5}: 1, {1, 6}: 1, {5, 5}: 1, {0, 6}: 1}, classed,
			cmp.AllowUnexported(place{})); diff != "" {
			t.Errorf("class (-want +got):\n%s", diff)
		}
		if c := counts(t, w); len(c.Received) > 0 {
			t.Errorf("received %v, though only what leaves is watched", c.Received)
		}
	})
}

// TestTagBesideData: the programs find the VLAN tag of a VLAN device's packets, although it is
// not in the data.
func TestTagBesideData(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		vethtest.IP(t, `link add link v0 name v0.7 type vlan id 7
			link set v0.7 up
			link add link v1 name v1.7 type vlan id 7
			link set v1.7 up`)
		onQueue(t, vethtest.Dev, 1)
		onQueue(t, vethtest.Peer, 2)
		w := open(t)
		udp := packets[slices.IndexFunc(packets, func(p packet) bool { return p.name == "UDP in the VLAN" })]
		udp.vlan = 0
		vethtest.SendFrame(t, "v0.7", 0, 1, udp.frame(false))
		vethtest.SendFrame(t, "v1.7", 0, 1, udp.frame(true))
		vethtest.Until(t, "received", func() bool {
			got, _ := byPlace(counts(t, w).Received)
			return got[place{2, 2}] == 1
		})
		if got, _ := byPlace(counts(t, w).Sent); got[place{2, 1}] != 1 {
			t.Errorf("sent %v, want one of lane 2 by queue 1", got)
		}
	})
}

// TestOtherDevice: the watcher does not count packets of the veth's other end, or of a device
// with the same index in another namespace.
func TestOtherDevice(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		w := open(t)
		vethtest.Run(t, queues, func(t *testing.T) {
			for _, p := range packets {
				vethtest.SendFrame(t, vethtest.Dev, 0, 1, p.frame(false))
				vethtest.SendFrame(t, vethtest.Peer, 0, 1, p.frame(true))
			}
		})
		for _, c := range counts(t, w).Sent {
			if c.Lane > 0 {
				t.Errorf("counted %+v, sent by another namespace's %s", c, vethtest.Dev)
			}
		}
	})
}

// TestRefuse: before it loads anything, Open refuses lanes that it cannot distinguish.
func TestRefuse(t *testing.T) {
	var many count.Lane
	for bits := 1; bits <= 32; bits++ {
		p := netip.PrefixFrom(netip.MustParseAddr("128.0.0.0"), bits).Masked().String()
		many.Matches = append(many.Matches, device.Match{Family: 4, Protocol: "tcp", Local: p},
			device.Match{Family: 4, Protocol: "tcp", Remote: p},
			device.Match{Family: 4, Protocol: "tcp", Local: p, LocalPort: 1})
	}
	for name, l := range map[string]count.Lane{
		"protocol": {Matches: []device.Match{{Family: 4, Protocol: "icmp"}}},
		"patterns": many,
	} {
		if w, err := count.Open(&device.Device{Name: "none"}, []count.Lane{l}); err == nil {
			w.Close()
			t.Errorf("%s: not refused", name)
		}
	}
}

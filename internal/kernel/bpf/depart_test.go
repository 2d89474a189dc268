// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// The link of these tests is so slow that the time between two packets of a test does not matter: a
// byte takes 8 us, and a packet of 30,000 bytes 240 ms.
const (
	slowLink = 1e6 // bit/s
	size     = 30_000
	onWire   = 240 * time.Millisecond
)

// A departer runs the classifier with lanes that share a link.
type departer struct {
	*testing.T
	p             *ebpf.Program
	m             *maps
	ranks, clocks *ebpf.Map
}

const (
	tcActUnspec = -1
	tcActShot   = 2
)

// Places of __sk_buff's fields in skb.Rest.
const (
	tstampAt  = 29
	wireLenAt = 31
	gsoSegsAt = 32
)

// newDeparter makes lane n of ports 1000+n. Lane 0 is the default lane.
func newDeparter(t *testing.T, link device.FilterLink, shares ...device.FilterShare) *departer {
	t.Helper()
	objs, m := load(t)
	m.shares = shareMaps{objs.NlLink, objs.NlShares, objs.NlDeparted}
	link.Rate = slowLink
	if link.Horizon == 0 {
		link.Horizon, link.Mark = 9e9, 8
	}
	v, err := encodeLink(link)
	must.Do(t, err)
	must.Do(t, m.shares.link.Put(uint32(0), v))
	for _, s := range shares {
		v, err := encodeShare(s)
		must.Do(t, err)
		must.Do(t, m.shares.shares.Put(uint32(s.Lane), v))
		if s.Lane > 0 {
			put(t, m, device.FilterEntry{Lane: s.Lane,
				Match: device.Match{Family: 4, Protocol: "udp", LocalPort: uint16(1000 + s.Lane)}})
		}
	}
	// Without entries, there are no lanes, and the program does nothing.
	put(t, m, device.FilterEntry{Lane: 70, Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 1070}})
	return &departer{t, objs.NiclaneEgress, m, objs.NlRanks, objs.NlClocks}
}

// A packet is of a lane and of one of its flows.
type packet struct {
	lane, flow int
	address    string // "": 10.0.0.1
	ownTime    int64  // skb->tstamp that the socket has set
	ecn        byte
	arp        bool
	bytes      int // 0: size
	segments   int // of GSO
}

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// run sends a packet. It returns its departure time, 0 for at once, and the frame.
func (d *departer) run(x packet) (at int64, dropped bool, b []byte) {
	d.Helper()
	if x.address == "" {
		x.address = "10.0.0.1"
	}
	if x.bytes == 0 {
		x.bytes = size
	}
	b = withClass(frame(0x800, ipv4(17, x.address, "10.0.0.9", 0, 0, ports(uint16(1000+x.lane), uint16(x.flow)))), x.ecn)
	if x.arp {
		b = frame(0x806, make([]byte, 46))
	}
	in, out := skb{}, skb{}
	in.Rest[tstampAt], in.Rest[tstampAt+1], in.Rest[wireLenAt] = uint32(x.ownTime), uint32(x.ownTime>>32),
		uint32(x.bytes)
	in.Rest[gsoSegsAt] = uint32(x.segments)
	opts := ebpf.RunOptions{Data: b, DataOut: make([]byte, len(b)+64), Context: in, ContextOut: &out}
	ret, err := d.p.Run(&opts)
	must.Do(d.T, err)
	if r := int32(ret); r != tcActUnspec && r != tcActShot {
		d.Fatalf("returned %d", r)
	}
	return int64(uint64(out.Rest[tstampAt]) | uint64(out.Rest[tstampAt+1])<<32), int32(ret) == tcActShot, opts.DataOut
}

// after sends packets. It returns how long after the first call each waits, in times of a packet on
// the wire, rounded; -1 if it is dropped.
func (d *departer) after(xs ...packet) (waits []int) {
	d.Helper()
	start := monotonic()
	for _, x := range xs {
		at, dropped, _ := d.run(x)
		switch {
		case dropped:
			waits = append(waits, -1)
		case at == 0:
			waits = append(waits, 0)
		default:
			waits = append(waits, int((time.Duration(at-start)+onWire/2)/onWire))
		}
	}
	return waits
}

func several(lane, flow, n int) (xs []packet) {
	for range n {
		xs = append(xs, packet{lane: lane, flow: flow})
	}
	return xs
}

func join(lists ...[]packet) (out []packet) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// aShare returns a share without bursts.
func aShare(lane, rank int, guarantee, ceiling uint64) device.FilterShare {
	return device.FilterShare{Lane: lane, Rank: rank, Guarantee: guarantee, Ceiling: ceiling}
}

// TestDeparts sends packets at one moment. want is when they leave, in packets' times on the wire.
func TestDeparts(t *testing.T) {
	bulk := device.FilterShare{Rank: 7}
	fair := device.FilterShare{Rank: 7, Fair: device.FairFlows}
	for _, c := range []struct {
		name    string
		ranks   []int
		shares  []device.FilterShare
		packets []packet
		want    []int
	}{
		{"one after another", []int{7}, []device.FilterShare{bulk}, several(0, 1, 4), []int{0, 1, 2, 3}},
		{"an earlier rank goes first, and later ranks wait for it", []int{1, 7},
			[]device.FilterShare{bulk, aShare(1, 1, 0, 0)},
			join(several(0, 1, 3), several(1, 1, 3), several(0, 1, 1)), []int{0, 1, 2, 0, 1, 2, 6}},
		{"a guarantee before an earlier rank", []int{1, 7},
			[]device.FilterShare{aShare(0, 7, slowLink/4, 0), aShare(1, 1, 0, 0)},
			join(several(1, 1, 8), several(0, 1, 3), several(1, 1, 1)), []int{0, 1, 2, 3, 4, 5, 6, 7, 0, 4, 8, 11}},
		{"beyond its guarantee, a lane takes what is free", []int{1},
			[]device.FilterShare{aShare(1, 1, slowLink/4, 0)}, several(1, 1, 4), []int{0, 0, 2, 3}},
		{"a ceiling", []int{1, 7}, []device.FilterShare{bulk, aShare(1, 1, 0, slowLink/4)},
			join(several(1, 1, 3), several(0, 1, 1)), []int{0, 4, 8, 3}},
		{"a ceiling below the guarantee of another", []int{1}, []device.FilterShare{
			aShare(1, 1, 0, slowLink/8), aShare(2, 1, slowLink/2, 0)},
			join(several(1, 1, 2), several(2, 1, 2)), []int{0, 8, 0, 2}},
		{"a lane that sends little before one that sends much", []int{3}, []device.FilterShare{
			{Lane: 1, Rank: 3, Lanes: 2, Part: slowLink / 2}, {Lane: 2, Rank: 3, Lanes: 2, Part: slowLink / 2}},
			join(several(1, 1, 2), several(2, 1, 2), several(1, 1, 1)), []int{0, 0, 0, 2, 2}},
		{"but not before earlier ranks", []int{1, 3}, []device.FilterShare{{Lane: 1, Rank: 1},
			{Lane: 2, Rank: 3, Lanes: 2, Part: slowLink / 2}, {Lane: 3, Rank: 3, Lanes: 2, Part: slowLink / 2}},
			join(several(1, 1, 4), several(2, 1, 1), several(3, 1, 1)), []int{0, 1, 2, 3, 4, 4}},
		{"what earlier ranks send is deducted from a part", []int{1, 3}, []device.FilterShare{{Lane: 1, Rank: 1},
			{Lane: 2, Rank: 3, Part: slowLink}},
			join(several(2, 1, 2), several(1, 1, 2), several(2, 1, 1)), []int{0, 0, 0, 1, 3}},
		{"in equal parts from the lanes of a rank", []int{1, 3}, []device.FilterShare{{Lane: 1, Rank: 1},
			{Lane: 2, Rank: 3, Lanes: 2, Part: slowLink / 2}, {Lane: 3, Rank: 3, Lanes: 2, Part: slowLink / 2}},
			join(several(2, 1, 2), several(1, 1, 4), several(3, 1, 2), several(2, 1, 1)),
			[]int{0, 0, 0, 1, 2, 3, 4, 6, 6}},
		{"a new flow before old ones", []int{7},
			[]device.FilterShare{{Rank: 7, Fair: device.FairFlows, Flow: slowLink / 10}},
			join(several(0, 1, 3), several(0, 2, 2), several(0, 1, 1)), []int{0, 0, 2, 0, 4, 5}},
		{"flows without a rate of their own", []int{7}, []device.FilterShare{fair},
			join(several(0, 1, 3), several(0, 2, 1)), []int{0, 1, 2, 3}},
		{"flows have equal parts", []int{1},
			[]device.FilterShare{{Lane: 1, Rank: 1, Fair: device.FairFlows, Part: slowLink * 0.6}},
			join(several(1, 1, 2), several(1, 2, 2), several(1, 1, 1)), []int{0, 0, 0, 3, 2}},
		{"by address, all flows of one have one part", []int{1},
			[]device.FilterShare{{Lane: 1, Rank: 1, Fair: device.FairAddresses, Part: slowLink * 0.6}},
			[]packet{{lane: 1, flow: 1}, {lane: 1, flow: 2}, {lane: 1, flow: 3, address: "10.0.0.2"},
				{lane: 1, flow: 4, address: "10.0.0.2"}, {lane: 1, flow: 5}},
			[]int{0, 0, 0, 3, 2}},
		{"a guarantee of members", []int{1, 2}, []device.FilterShare{{Lane: 1, Rank: 1},
			{Lane: 2, Rank: 2, Fair: device.FairFlows, Guarantee: slowLink / 4, Part: slowLink / 2}},
			join(several(1, 1, 9), several(2, 1, 2)), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 4}},
		{"a member's packet leaves before its rank if that halves its wait, and not before the flow's last", []int{1},
			[]device.FilterShare{{Lane: 1, Rank: 1, Fair: device.FairFlows, Part: slowLink * 0.9}, {Lane: 2, Rank: 1}},
			join(several(2, 1, 4), several(1, 1, 6), several(2, 1, 4), several(1, 1, 1)),
			[]int{0, 1, 2, 3, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 9}},
		{"what a lane sends by rank moves its part, not far beyond that", []int{1}, []device.FilterShare{
			{Lane: 1, Rank: 1, Lanes: 2, Part: slowLink / 2}, {Lane: 2, Rank: 1, Lanes: 2}},
			join(several(2, 1, 1), several(1, 1, 3), several(2, 1, 4), several(1, 1, 1)),
			[]int{0, 0, 2, 3, 4, 5, 6, 7, 5}},
		{"what a flow sends by rank is deducted from its rate", []int{1}, []device.FilterShare{
			{Lane: 1, Rank: 1, Fair: device.FairFlows, Flow: slowLink / 2}, {Lane: 2, Rank: 1}},
			join(several(2, 1, 2), several(1, 1, 3), several(2, 1, 8), several(1, 1, 1)),
			[]int{0, 1, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 6}},
		{"what a member sends by rank is deducted from its guarantee", []int{1, 7}, []device.FilterShare{
			{Rank: 7, Fair: device.FairFlows, Guarantee: slowLink / 4, Part: slowLink / 1e4}, aShare(1, 1, 0, 0)},
			join(several(0, 1, 3), several(1, 1, 1), several(0, 1, 1)), []int{0, 0, 2, 0, 4}},
		{"a new flow's clock gives the guarantee no time since boot, and back", []int{1, 7}, []device.FilterShare{
			{Rank: 7, Fair: device.FairFlows, Guarantee: slowLink / 8, Part: slowLink / 2, Flow: slowLink / 1000},
			aShare(1, 1, 0, 0)}, several(0, 1, 6), []int{0, 0, 2, 3, 4, 5}},
		{"without a share, at once", []int{7}, []device.FilterShare{bulk},
			join(several(0, 1, 2), several(5, 1, 1)), []int{0, 1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDeparter(t, device.FilterLink{Ranks: c.ranks}, c.shares...)
			if got := d.after(c.packets...); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestWire: a frame takes the link for 24 bytes longer than it has, and each segment of a GSO packet does.
func TestWire(t *testing.T) {
	d := newDeparter(t, device.FilterLink{Ranks: []int{7}}, device.FilterShare{Rank: 7})
	clock := func() (v struct{ Clock, Taken, _, _, _, _, _, _ uint64 }) {
		must.Do(t, d.ranks.Lookup(uint32(7), &v))
		return v
	}
	d.run(packet{}) // the others wait behind it
	for _, x := range []packet{{bytes: 100}, {bytes: 1000, segments: 3}} {
		before, want := clock(), uint64(x.bytes+24*max(1, x.segments))
		d.run(x)
		if got := clock().Clock - before.Clock; got != want*8e9/slowLink {
			t.Errorf("%d bytes in %d segments take %d ns, want those of %d bytes", x.bytes, x.segments, got, want)
		}
	}
}

// TestHorizon sends more than may wait. Packets that would wait longer are dropped, and take nothing
// from the clocks. With ECN, packets are marked before that.
func TestHorizon(t *testing.T) {
	link := device.FilterLink{Ranks: []int{7}, Horizon: uint64(5*onWire + onWire/2), Mark: uint64(2*onWire + onWire/2)}
	d := newDeparter(t, link, device.FilterShare{Rank: 7})
	if got, want := d.after(several(0, 1, 8)...), []int{0, 1, 2, 3, 4, 5, -1, -1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	var cpus []departed
	must.Do(t, d.m.shares.departed.Lookup(uint32(0), &cpus))
	var sum departed
	for _, c := range cpus {
		sum.Waited, sum.Dropped, sum.Marked = sum.Waited+c.Waited, sum.Dropped+c.Dropped, sum.Marked+c.Marked
		sum.Ns += c.Ns
	}
	if sum.Waited != 5 || sum.Dropped != 2 || sum.Marked != 0 || (time.Duration(sum.Ns)+onWire/2)/onWire != 15 {
		t.Errorf("%+v, want 5 that waited for 15 packets together, and 2 dropped", sum)
	}

	for _, c := range []struct {
		ecn    byte
		marked int
	}{{0, 0}, {1, 3}, {2, 3}} { // not ECT, ECT(1), ECT(0)
		d := newDeparter(t, link, device.FilterShare{Rank: 7})
		marked := 0
		for range 6 {
			if _, _, b := d.run(packet{ecn: c.ecn}); b[ipAt(b)+1]&3 == 3 {
				marked++
			}
		}
		if marked != c.marked {
			t.Errorf("ECN %d: %d marked, want %d", c.ecn, marked, c.marked)
		}
	}
}

// TestIdlePart makes a lane's part idle for a second, in which an earlier rank sends 16 MB. The lane does
// not pay for that.
func TestIdlePart(t *testing.T) {
	d := newDeparter(t, device.FilterLink{Ranks: []int{1, 3}}, aShare(1, 1, 0, 0),
		device.FilterShare{Lane: 2, Rank: 3, Part: slowLink})
	if got := d.after(several(2, 1, 2)...); fmt.Sprint(got) != "[0 0]" {
		t.Fatalf("%v, want [0 0]", got)
	}
	var rank struct{ Clock, Taken, _, _, _, _, _, _ uint64 }
	must.Do(t, d.ranks.Lookup(uint32(1), &rank))
	rank.Taken += 1 << 24
	must.Do(t, d.ranks.Put(uint32(1), rank))
	var clocks struct{ Guarantee, Ceiling, Part, Earlier, Last, _, _, _ uint64 }
	must.Do(t, d.clocks.Lookup(uint32(2), &clocks))
	clocks.Part -= uint64(time.Second)
	must.Do(t, d.clocks.Put(uint32(2), clocks))
	if got := d.after(several(2, 1, 1)...); fmt.Sprint(got) != "[0]" {
		t.Errorf("%v, want [0]", got)
	}
}

// TestHeaviestFirst sends two flows to a full link. Packets of the flow that has most are dropped
// before those of the other.
func TestHeaviestFirst(t *testing.T) {
	d := newDeparter(t, device.FilterLink{Ranks: []int{7}, Horizon: uint64(12*onWire + onWire/2), Mark: uint64(12 * onWire)},
		device.FilterShare{Rank: 7, Fair: device.FairFlows})
	got := d.after(join(several(0, 1, 12), several(0, 2, 1))...)
	heavy, light := 0, 0
	for i, w := range got {
		switch {
		case w >= 0:
		case i < 12:
			heavy++
		default:
			light++
		}
	}
	if heavy < 6 || light > 0 {
		t.Errorf("%v: the heavy flow lost %d of 12, the light one %d of 1", got, heavy, light)
	}
}

// TestOwnTime sets departure times as sockets do.
func TestOwnTime(t *testing.T) {
	d := newDeparter(t, device.FilterLink{Ranks: []int{7}}, device.FilterShare{Rank: 7})
	now := monotonic()
	second := int64(time.Second)
	for _, c := range []struct {
		name      string
		own, want int64
	}{
		{"a time in the past stays", now - second, now - second},
		{"a later time stays", now + 5*second, now + 5*second},
		{"of another clock (CLOCK_TAI): fq would drop it", now + 1e9*second, 0},
	} {
		at, _, _ := d.run(packet{ownTime: c.own})
		if c.want != 0 && at != c.want || c.want == 0 && at > now+second {
			t.Errorf("%s: %d, want %d", c.name, at, c.want)
		}
	}
	if at, _, _ := d.run(packet{ownTime: now - second}); at <= now {
		t.Errorf("a packet sent again, with the time of its first try, leaves at %d, before its turn", at)
	}
}

// TestNotIP: other packets wait too. bpf_skb_set_tstamp refuses them.
func TestNotIP(t *testing.T) {
	d := newDeparter(t, device.FilterLink{Ranks: []int{7}}, device.FilterShare{Rank: 7})
	got := d.after(packet{arp: true}, packet{arp: true}, packet{}, packet{arp: true})
	if diff := cmp.Diff([]int{0, 1, 2, 3}, got); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

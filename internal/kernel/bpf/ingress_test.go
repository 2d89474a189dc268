// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
)

const (
	xdpPass     = 2
	xdpRedirect = 4
)

// xdpMD is struct xdp_md (linux/bpf.h).
type xdpMD struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// loadXDP loads the XDP program without attaching it.
func loadXDP(t testing.TB, count bool) (*ebpf.Program, *xdpMaps) {
	t.Helper()
	return loadVariant(t, variant{program: IngressProgram}, count)
}

func loadVariant(t testing.TB, v variant, count bool) (*ebpf.Program, *xdpMaps) {
	t.Helper()
	var objs ingressObjects
	loadInto(t, v, count, &objs)
	return objs.NiclaneIngress, &xdpMaps{
		table: table[ingressTarget]{inUse: objs.NlInUse, patterns: objs.NlPatterns, flows: objs.NlFlows},
		lanes: objs.NlLanes, cpus: objs.NlCpus, counters: objs.NlCounters, tunnels: objs.NlTunnels,
	}
}

func runXDP(t testing.TB, p *ebpf.Program, frame []byte, ifindex, queue int) uint32 {
	t.Helper()
	got := make([]byte, len(frame)+256)
	opts := ebpf.RunOptions{
		Data: frame, DataOut: got,
		Context: xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex), RxQueueIndex: uint32(queue)},
	}
	ret, err := p.Run(&opts)
	if err != nil {
		t.Fatalf("%d bytes %x: %v", len(frame), frame, err)
	}
	if !bytes.Equal(opts.DataOut, frame) {
		t.Errorf("the frame was changed:\n%x\n%x", frame, opts.DataOut)
	}
	return ret
}

// laneOf returns the lane of a class's match: class "1:10" is lane 10.
func laneOf(class string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(class, "1:"))
	if err != nil {
		panic(err)
	}
	return n
}

// fillXDP makes lanes with count CPUs each. cpu returns the number of a lane's i-th CPU.
func fillXDP(t testing.TB, m *xdpMaps, count int, cpu func(i int) uint32) {
	t.Helper()
	for class := range classes {
		l := lane{Count: uint32(count)}
		for i := range l.CPUs {
			l.CPUs[i] = cpu(i % count)
		}
		must.Do(t, m.lanes.Update(uint32(laneOf(class)), l, ebpf.UpdateAny))
	}
}

func addLanes(t testing.TB, m *xdpMaps) {
	t.Helper()
	for class, match := range classes {
		f, mask, err := flow.Encode(match)
		must.Do(t, err)
		must.Do(t, m.add(f, mask, ingressTarget{Lane: uint32(laneOf(class))}))
	}
	addTunnels(t, m.tunnels)
	addQueue(t, m)
}

func addQueue(t testing.TB, m *xdpMaps) {
	t.Helper()
	must.Do(t, m.cpus.Update(uint32(0), cpuQueue{Size: 64}, ebpf.UpdateAny))
}

// arriving returns the flow of a frame that arrives, and the lane that the reference in Go finds
// for it.
func arriving(b []byte) (f flow.Flow, lane int) {
	f, class, ok := looked(b, true, classes)
	if ok {
		lane = laneOf(class)
	}
	return f, lane
}

// flowHash is flow_hash of flow.h.
func flowHash(f flow.Flow) uint32 {
	const golden = 0x9e3779b97f4a7c15
	f.VLAN = 0
	w := (*[unsafe.Sizeof(f) / 8]uint64)(unsafe.Pointer(f.Bytes()))
	h := w[0] * golden
	for _, v := range w[1:] {
		h = (h ^ h>>32 ^ v) * golden
	}
	return uint32((h ^ h>>32) * golden >> 32)
}

// chosen finds out which of 64 CPUs the program chooses. It runs the program once for each of
// the six bits of a CPU's number; only the CPUs whose number has the bit are present then. It
// returns -1 if the packet passes although all CPUs are present.
func chosen(t testing.TB, p *ebpf.Program, m *xdpMaps, b []byte) int {
	t.Helper()
	const absent = 1 << 20
	fillXDP(t, m, maxCPUs, func(int) uint32 { return 0 })
	if runXDP(t, p, b, 0, 0) != xdpRedirect {
		return -1
	}
	index := 0
	for bit := range 6 {
		fillXDP(t, m, maxCPUs, func(i int) uint32 {
			if i>>bit&1 == 1 {
				return 0
			}
			return absent
		})
		switch got := runXDP(t, p, b, 0, 0); got {
		case xdpRedirect:
			index |= 1 << bit
		case xdpPass:
		default:
			t.Fatalf("returned %d", got)
		}
	}
	return index
}

func TestIngress(t *testing.T) {
	p, m := loadXDP(t, true)
	addLanes(t, m)
	fillXDP(t, m, 1, func(int) uint32 { return 0 })
	for name, tt := range frames(true) {
		t.Run(name, func(t *testing.T) {
			want, lane := uint32(xdpPass), 0
			if tt.want != "" {
				want, lane = xdpRedirect, laneOf(tt.want)
			}
			before := packetsByLane(t, m)
			if got := runXDP(t, p, tt.frame, 0, 0); got != want {
				t.Errorf("returned %d, want %d", got, want)
			}
			if got := packetsByLane(t, m); got[lane] != before[lane]+1 {
				t.Errorf("counted %v, then %v, want one more of lane %d", before, got, lane)
			}
			if _, got := arriving(tt.frame); got != lane {
				t.Errorf("the reference says lane %d, want %d", got, lane)
			}
		})
	}
}

// TestLaneAndCPU compares the lane and the CPU that the program chooses with those of the
// reference in Go.
func TestLaneAndCPU(t *testing.T) {
	p, m := loadXDP(t, true)
	addLanes(t, m)
	r := rand.New(rand.NewPCG(3, 4))
	seen := map[int]bool{}
	hits := 0
	before := packetsByLane(t, m)
	for range 1000 {
		b := randomFrame(r)
		f, lane := arriving(b)
		want := -1
		if lane != 0 {
			want = int(uint64(flowHash(f)) * maxCPUs >> 32)
			seen[want] = true
			hits++
		}
		if got := chosen(t, p, m, b); got != want {
			t.Errorf("%x: CPU %d, the reference says %d of lane %d", b, got, want, lane)
		}
		after := packetsByLane(t, m)
		for l, n := range after {
			if (n > before[l]) != (l == lane) {
				t.Errorf("%x: lane %d counted %d, want lane %d", b, l, n-before[l], lane)
			}
		}
		before = after
	}
	if hits < 100 {
		t.Errorf("only %d of 1000 frames are a lane's", hits)
	}
	if len(seen) < 32 { // few, because the frames have few addresses and ports
		t.Errorf("only %d CPUs of %d were chosen", len(seen), maxCPUs)
	}
}

func packetsByLane(t testing.TB, m *xdpMaps) (out [maxLanes]uint64) {
	t.Helper()
	for l := range out {
		var cpus []counters
		must.Do(t, m.counters.Lookup(uint32(l), &cpus))
		for _, c := range cpus {
			out[l] += c.Queue[0].Packets
		}
	}
	return out
}

// FuzzIngress compares the lane that the program finds for a frame with that of the reference in
// Go.
func FuzzIngress(f *testing.F) {
	for _, b := range [][]byte{
		frame(0x800, ipv4(6, four2, four, 0, 0, ports(4000, 11211))),
		frame(0x8100, tag(7, 0x800), ipv4(6, four2, four, 0, 8, ports(1, 80))),
		frame(0x88a8, tag(7, 0x8100), tag(9, 0x86dd),
			ipv6(0, six2, six, ext(44, 1, 16), fragment6(6, 0), ports(4000, 11211))),
		frame(0x86dd, ipv6(51, six2, six, ext(60, 1, 12), ext(6, 0, 8), ports(443, 1))),
		vxlan(frame(0x800, ipv4(6, four2, four, 0, 0, ports(4000, 11211)))),
		geneve(2, 0x86dd, ipv6(6, six2, six, ports(4000, 11211))),
	} {
		f.Add(b)
	}
	p, m := loadXDP(f, false)
	addLanes(f, m)
	fillXDP(f, m, 1, func(int) uint32 { return 0 })
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 14 || len(b) > 3000 {
			return
		}
		want := uint32(xdpPass)
		if _, lane := arriving(b); lane != 0 {
			want = xdpRedirect
		}
		if got := runXDP(t, p, b, 0, 0); got != want {
			t.Errorf("%x: returned %d, the reference says %d", b, got, want)
		}
	})
}

// TestPasses: the program drops no packet. A packet passes if its lane or its CPU's queue does
// not exist.
func TestPasses(t *testing.T) {
	p, m := loadXDP(t, true)
	b := frame(0x800, ipv4(6, four2, four, 0, 0, ports(4000, 11211)))
	pass := func(what string) {
		t.Helper()
		if got := runXDP(t, p, b, 0, 0); got != xdpPass {
			t.Errorf("%s: returned %d, want XDP_PASS", what, got)
		}
	}
	pass("empty maps")
	addLanes(t, m)
	pass("no lanes")
	fillXDP(t, m, 2, func(i int) uint32 { return uint32(1000000 + i) })
	pass("CPUs that do not exist")
	fillXDP(t, m, 2, func(i int) uint32 { return 0 })
	if got := runXDP(t, p, b, 0, 0); got != xdpRedirect {
		t.Errorf("with a queue: returned %d, want XDP_REDIRECT", got)
	}
	must.Do(t, m.cpus.Delete(uint32(0)))
	pass("no queues")
	if got := packetsByLane(t, m); got[0] != 1 || got[10] != 4 {
		t.Errorf("counted %v", got)
	}
}

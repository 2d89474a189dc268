// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// The benchmarks measure the time per packet by BPF_PROG_TEST_RUN. It contains the program and
// the test run's own loop (a few nanoseconds), but no driver. Each packet belongs to the member
// that was added last.

func member(i int) device.Match {
	return device.Match{Family: 4, Protocol: "tcp", Local: fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&0xff, i&0xff),
		LocalPort: 11211}
}

func addMember[T any](b *testing.B, t *table[T], i int, target T) {
	b.Helper()
	f, mask, err := flow.Encode(member(i))
	if err == nil {
		err = t.add(f, mask, target)
	}
	must.Do(b, err)
}

func memberFrame(i int, arrives bool) []byte {
	local := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)
	if arrives {
		return frame(0x800, ipv4(6, "192.0.2.1", local, 0, 0, ports(4000, 11211)))
	}
	return frame(0x800, ipv4(6, local, "192.0.2.1", 0, 0, ports(11211, 4000)))
}

// testRun reports the time per packet in the fastest of many turns, because other work of the
// machine slows the others. It fails if the program does not return want.
func testRun(b *testing.B, p *ebpf.Program, frame []byte, want int32) {
	b.Helper()
	ret, _, err := p.Benchmark(frame, 1, nil)
	must.Do(b, err)
	if int32(ret) != want {
		b.Fatalf("returned %d, want %d", int32(ret), want)
	}
	b.ReportMetric(float64(turns(b, []*ebpf.Program{p}, [][]byte{frame})[0]), "ns/packet")
}

func BenchmarkIngress(b *testing.B) {
	for _, counts := range []bool{true, false} {
		for _, members := range []int{0, 1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("counters=%v/members=%d", counts, members), func(b *testing.B) {
				p, m := loadXDP(b, counts)
				want := int32(xdpPass)
				if members > 0 {
					want = xdpRedirect
					addQueue(b, m)
					fillXDP(b, m, 2, func(int) uint32 { return 0 })
				}
				for i := range members {
					addMember(b, &m.table, i+1, ingressTarget{Lane: 10})
				}
				testRun(b, p, memberFrame(members, true), want)
			})
		}
	}
}

func BenchmarkEgress(b *testing.B) {
	for _, members := range []int{0, 1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			objs, m := load(b)
			for i := range members {
				addMember(b, &m.table, i+1, egressTarget{Class: 0x10010, Queue: 2, Queues: 2})
			}
			testRun(b, objs.NiclaneEgress, memberFrame(members, false), -1)
		})
	}
}

// BenchmarkPatterns measures the cost of additional patterns (sets of compared fields).
func BenchmarkPatterns(b *testing.B) {
	for _, patterns := range []int{1, 2, 4, 16} {
		b.Run(fmt.Sprintf("patterns=%d", patterns), func(b *testing.B) {
			p, m := loadXDP(b, true)
			addQueue(b, m)
			fillXDP(b, m, 2, func(int) uint32 { return 0 })
			addMember(b, &m.table, 1, ingressTarget{Lane: 10})
			for i := 1; i < patterns; i++ {
				f, mask, err := flow.Encode(device.Match{Family: 4, Protocol: "tcp",
					Remote: fmt.Sprintf("128.0.0.0/%d", i)})
				if err == nil {
					err = m.add(f, mask, ingressTarget{Lane: 11})
				}
				must.Do(b, err)
			}
			testRun(b, p, memberFrame(1, true), xdpRedirect)
		})
	}
}

// BenchmarkAdd measures the time to add and remove the 1000th member.
func BenchmarkAdd(b *testing.B) {
	_, m := loadXDP(b, true)
	for i := range 999 {
		addMember(b, &m.table, i+1, ingressTarget{Lane: 10})
	}
	f, mask, err := flow.Encode(member(1000))
	must.Do(b, err)
	for b.Loop() {
		must.Do(b, m.add(f, mask, ingressTarget{Lane: 10}))
		must.Do(b, m.remove(f, mask))
	}
}

// BenchmarkLoad measures the time in which the kernel verifies and loads a program.
func BenchmarkLoad(b *testing.B) {
	for _, v := range []variant{{program: EgressProgram}, {program: IngressProgram},
		{program: IngressProgram, frags: true}} {
		b.Run(fmt.Sprintf("%s/frags=%v", v.program, v.frags), func(b *testing.B) {
			for b.Loop() {
				must.Do(b, check(v))
			}
		})
	}
}

// turns runs programs in turn, each on its own frame, so that a busy machine slows all of
// them equally. It returns the time per packet in the fastest turn of each program.
func turns(b *testing.B, ps []*ebpf.Program, frames [][]byte) []time.Duration {
	b.Helper()
	const turn = 20000
	best := make([]time.Duration, len(ps))
	b.ResetTimer()
	for range max(100, b.N/turn) {
		for i, p := range ps {
			_, d, err := p.Benchmark(frames[i], turn, nil)
			must.Do(b, err)
			if best[i] == 0 || d < best[i] {
				best[i] = d
			}
		}
	}
	b.ReportMetric(0, "ns/op") // hides a meaningless figure
	return best
}

// BenchmarkCounters compares the programs with and without counters.
func BenchmarkCounters(b *testing.B) {
	var ingress, egress []*ebpf.Program
	for _, count := range []bool{false, true} {
		p, m := loadXDP(b, count)
		addQueue(b, m)
		fillXDP(b, m, 2, func(int) uint32 { return 0 })
		addMember(b, &m.table, 1, ingressTarget{Lane: 10})
		objs, e := loadCounting(b, count)
		addMember(b, &e.table, 1, egressTarget{Class: 0x10010})
		ingress, egress = append(ingress, p), append(egress, objs.NiclaneEgress)
	}
	for name, ps := range map[string][]*ebpf.Program{"ingress": ingress, "egress": egress} {
		b.Run(name, func(b *testing.B) {
			frame := memberFrame(1, name == "ingress")
			d := turns(b, ps, [][]byte{frame, frame})
			b.ReportMetric(float64(d[0]), "off-ns/packet")
			b.ReportMetric(float64(d[1]), "on-ns/packet")
			b.ReportMetric(float64(d[1])/float64(d[0]), "on/off")
		})
	}
}

// BenchmarkMembers compares a thousand members with one member.
func BenchmarkMembers(b *testing.B) {
	members := []int{1, 1000}
	var ingress, egress []*ebpf.Program
	var arriving, leaving [][]byte
	for _, n := range members {
		p, m := loadXDP(b, true)
		addQueue(b, m)
		fillXDP(b, m, 2, func(int) uint32 { return 0 })
		objs, e := load(b)
		for i := range n {
			addMember(b, &m.table, i+1, ingressTarget{Lane: 10})
			addMember(b, &e.table, i+1, egressTarget{Class: 0x10010, Queue: 2, Queues: 2})
		}
		ingress, arriving = append(ingress, p), append(arriving, memberFrame(n, true))
		egress, leaving = append(egress, objs.NiclaneEgress), append(leaving, memberFrame(n, false))
	}
	for name, run := range map[string]func(*testing.B) []time.Duration{
		"ingress": func(b *testing.B) []time.Duration { return turns(b, ingress, arriving) },
		"egress":  func(b *testing.B) []time.Duration { return turns(b, egress, leaving) },
	} {
		b.Run(name, func(b *testing.B) {
			d := run(b)
			b.ReportMetric(float64(d[0]), "one-ns/packet")
			b.ReportMetric(float64(d[1]), "thousand-ns/packet")
			b.ReportMetric(float64(d[1])/float64(d[0]), "thousand/one")
		})
	}
}

// BenchmarkOther measures packets that belong to no lane: TCP and UDP.
func BenchmarkOther(b *testing.B) {
	objs, m := load(b)
	addMember(b, &m.table, 1, egressTarget{Class: 0x10010, Queue: 2, Queues: 2})
	p, x := loadXDP(b, true)
	addMember(b, &x.table, 1, ingressTarget{Lane: 10})
	for name, proto := range map[string]byte{"tcp": 6, "udp": 17} {
		f := frame(0x800, ipv4(proto, "10.9.9.9", "192.0.2.1", 0, 0, ports(1, 2)))
		b.Run("egress/"+name, func(b *testing.B) { testRun(b, objs.NiclaneEgress, f, -1) })
		b.Run("ingress/"+name, func(b *testing.B) { testRun(b, p, f, xdpPass) })
	}
}

// BenchmarkTunnel measures packets in tunnels: those of a lane, and those of no lane.
func BenchmarkTunnel(b *testing.B) {
	objs, m := load(b)
	addMember(b, &m.table, 1, egressTarget{Class: 0x10010, Queue: 2, Queues: 2})
	addTunnels(b, m.tunnels)
	for name, inner := range map[string][]byte{"lane": memberFrame(1, false), "other": memberFrame(2, false)} {
		b.Run("vxlan/"+name, func(b *testing.B) { testRun(b, objs.NiclaneEgress, vxlan(inner), -1) })
		b.Run("geneve/"+name, func(b *testing.B) { testRun(b, objs.NiclaneEgress, geneve(2, 0x6558, inner), -1) })
	}
}

// BenchmarkDSCP measures the cost of a DSCP that the packet has already: a test run repeats the
// packet that it has changed.
func BenchmarkDSCP(b *testing.B) {
	for _, dscp := range []uint16{0, 47} {
		b.Run(fmt.Sprintf("dscp=%v", dscp > 0), func(b *testing.B) {
			objs, m := load(b)
			addMember(b, &m.table, 1, egressTarget{Class: 0x10010, Queue: 2, Queues: 2, DSCP: dscp})
			testRun(b, objs.NiclaneEgress, memberFrame(1, false), -1)
		})
	}
}

// BenchmarkDepart compares the classifier with a lane that has a class with lanes that share a link by
// departure times: on an idle link, and on a full one. "default" is the default lane on a full link,
// whose flows have parts; "shared" is a lane whose members have parts, likewise.
func BenchmarkDepart(b *testing.B) {
	// A packet takes longer on this link than in the classifier. No packet may wait until the horizon.
	const full, horizon = 500e6, 1 << 35
	cases := []struct {
		name    string
		rate    uint64 // of the link, bit/s; 0: no departure times
		lane    int
		members int
	}{{"class", 0, 1, 1}, {"idle", 400e9, 1, 1}, {"idle-1000", 400e9, 1, 1000}, {"full", full, 1, 1},
		{"full-1000", full, 1, 1000}, {"shared", full, 2, 1}, {"shared-1000", full, 2, 1000}, {"default", full, 0, 1}}
	var ps []*ebpf.Program
	var frames [][]byte
	for _, c := range cases {
		objs, m := load(b)
		for i := range c.members {
			addMember(b, &m.table, 1+i, egressTarget{Class: 0x10010, Queue: 2, Queues: 2, Lane: uint16(c.lane)})
		}
		if c.rate > 0 {
			l, err := encodeLink(device.FilterLink{Rate: c.rate, Horizon: horizon, Mark: horizon, Ranks: []int{1, 7}})
			must.Do(b, err)
			must.Do(b, objs.NlLink.Put(uint32(0), l))
			for _, s := range []device.FilterShare{{Lane: 1, Rank: 1, Guarantee: c.rate / 4, Part: c.rate / 2},
				{Lane: 2, Rank: 1, Guarantee: c.rate / 4, Part: c.rate / 2, Fair: device.FairAddresses, Flow: c.rate / 1000},
				{Rank: 7, Part: c.rate / 2, Fair: device.FairFlows, Flow: c.rate / 1000}} {
				v, err := encodeShare(s)
				must.Do(b, err)
				must.Do(b, objs.NlShares.Put(uint32(s.Lane), v))
			}
		}
		b.Cleanup(func() {
			var cpus []departed
			must.Do(b, objs.NlDeparted.Lookup(uint32(c.lane), &cpus))
			for _, d := range cpus {
				if d.Dropped > 0 {
					b.Errorf("%s: %d packets were dropped", c.name, d.Dropped)
				}
			}
		})
		ps = append(ps, objs.NiclaneEgress)
		to := 1
		if c.lane == 0 {
			to = 1 << 20
		}
		frames = append(frames, memberFrame(to, false))
	}
	d := turns(b, ps, frames)
	for i, c := range cases {
		b.ReportMetric(float64(d[i]), c.name+"-ns/packet")
		b.ReportMetric(float64(d[i])/float64(d[0]), c.name+"/class")
	}
}

// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/count"
	"github.com/niclane/niclane/lane/device"
)

// These benchmarks measure what niclane's own counters cost for a packet. The cost is the processor
// time of the sending thread and of every kernel thread on the packet's path (softirq, cpumap), in
// ns per packet. Each round measures each way once. The metrics are medians; the medians of ratios
// use ratios within a round.

// BenchmarkCountersReceived sends from a packet socket through the XDP program and a cpumap to a
// socket whose buffer is full. It compares the program with and without its counters. In niclane,
// the counters are always on.
func BenchmarkCountersReceived(b *testing.B) { counted(b, countReceived) }

// BenchmarkCountersSent sends from a UDP socket through the classifier and HTB to the other end of
// a veth. It compares four ways: the classifier without counters; with counters, as always in
// niclane; with status --sent on this device; and with status --sent on another device. The last
// shows the cost for packets of other devices.
func BenchmarkCountersSent(b *testing.B) { counted(b, countSent) }

func counted(b *testing.B, f func(*testing.B)) {
	vethtest.NeedRoot(b)
	addNetns(b, chainNetns)
	wire(b, 1)
	defer enter(b, chainNetns)()
	for b.Loop() {
		f(b)
	}
}

// A countWay is one of the ways that are compared.
type countWay struct {
	name     string
	set, end func()
}

const countRounds = 60

// compareWays reports the cost of each way, and its ratio to the first.
func compareWays(b *testing.B, ways []countWay, send func()) {
	b.Helper()
	cost, ratio := map[string][]float64{}, map[string][]float64{}
	for range countRounds {
		var first float64
		for _, w := range ways {
			w.set()
			before := spent(b)
			send()
			ns := float64(spent(b)-before) / packets
			w.end()
			if first == 0 {
				first = ns
			}
			cost[w.name], ratio[w.name] = append(cost[w.name], ns), append(ratio[w.name], ns/first)
		}
	}
	for i, w := range ways {
		b.ReportMetric(median(cost[w.name]), "ns-"+w.name)
		if i > 0 {
			b.ReportMetric(median(ratio[w.name]), w.name+"/"+ways[0].name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// spent returns the processor time of this thread and of the kernel threads that receive, in ns.
func spent(b *testing.B) int64 {
	b.Helper()
	var own unix.Timespec
	must.Do(b, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &own))
	sum := own.Nano()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	must.Do(b, err)
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(name), "ksoftirqd/") && !strings.HasPrefix(string(name), "cpumap/") {
			continue
		}
		var ran int64
		if text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "schedstat")); err == nil {
			_, _ = fmt.Sscan(string(text), &ran) // a thread that has ended adds 0
		}
		sum += ran
	}
	return sum
}

func countReceived(b *testing.B) {
	steer(b, 1)
	defer func() { run(b, exec.Command("ip", "link", "set", chain0, "xdpgeneric", "off")) }()
	link, err := netlink.LinkByName(chain0)
	must.Do(b, err)
	attach := func(p *ebpf.Program) func() {
		return func() {
			must.Do(b, netlink.LinkSetXdpFdWithFlags(link, p.FD(), unix.XDP_FLAGS_SKB_MODE))
		}
	}
	nothing := func() {}
	compareWays(b, []countWay{
		{"off", attach(anew(b, bpf.IngressProgram, link.Attrs().Xdp.ProgId, 0)), nothing},
		{"on", attach(anew(b, bpf.IngressProgram, link.Attrs().Xdp.ProgId, 1)), nothing},
	}, func() { packetsTo(b, firstPort, packets) })
}

// objects are the files from which the programs are loaded, by program.
var objects = map[string]string{
	bpf.IngressProgram: "../../internal/kernel/bpf/ingress_bpfel.o",
	bpf.EgressProgram:  "../../internal/kernel/bpf/egress_bpfel.o",
}

// anew loads a program again. The new program uses the maps of the attached program with this id.
func anew(b *testing.B, program string, id, count uint32) *ebpf.Program {
	b.Helper()
	check := func(err error) {
		b.Helper()
		must.Do(b, err)
	}
	spec, err := ebpf.LoadCollectionSpec(objects[program])
	check(err)
	check(spec.Variables["nl_count"].Set(count))
	attached, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	check(err)
	defer attached.Close()
	info, err := attached.Info()
	check(err)
	ids, _ := info.MapIDs()
	maps := map[string]*ebpf.Map{}
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		check(err)
		defer m.Close()
		info, err := m.Info()
		check(err)
		if s := spec.Maps[info.Name]; s != nil {
			s.MaxEntries = info.MaxEntries
			maps[info.Name] = m
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	check(err)
	b.Cleanup(c.Close)
	return c.Programs[program]
}

func countSent(b *testing.B) {
	own(b, 1)
	defer func() { run(b, exec.Command("tc", "qdisc", "del", "dev", chain0, "clsact")) }()
	for _, line := range []string{
		"qdisc add dev " + chain0 + " root handle 1: htb default 2",
		"class add dev " + chain0 + " parent 1: classid 1:1 htb rate 40gbit quantum 60000",
		"class add dev " + chain0 + " parent 1:1 classid 1:2 htb rate 20gbit ceil 40gbit quantum 60000",
		"class add dev " + chain0 + " parent 1:1 classid 1:10 htb rate 20gbit ceil 40gbit quantum 60000",
	} {
		run(b, exec.Command("tc", strings.Fields(line)...))
	}
	defer func() { run(b, exec.Command("tc", "qdisc", "del", "dev", chain0, "root")) }()
	c, err := tc.Open()
	must.Do(b, err)
	defer c.Close()
	filter := device.Filter{Dev: chain0, Parent: "egress", Pref: 1, Handle: 1, Program: bpf.EgressProgram}
	attached, err := c.Filter(filter)
	if err != nil || attached == nil {
		b.Fatalf("%v, %v", attached, err)
	}
	attach := func(p *ebpf.Program) func() {
		return func() {
			must.Do(b, errors.Join(c.DeleteBPF(filter), c.AddBPF(filter, p.FD())))
		}
	}
	off := attach(anew(b, bpf.EgressProgram, attached.ProgramID, 0))
	on := attach(anew(b, bpf.EgressProgram, attached.ProgramID, 1))
	var w *count.Watcher
	watching := func(dev string) func() {
		link := vethtest.Interface(b, dev)
		return func() {
			on()
			w, err = count.OpenTransmit(&device.Device{Name: dev, Index: link.Index, Driver: "veth", RxQueues: 1,
				TxQueues: 1},
				[]count.Lane{{Class: 0x10010,
					Matches: []device.Match{{Family: 4, Protocol: "udp", LocalPort: firstPort}}}})
			must.Do(b, err)
		}
	}
	end := func() { w.Close() }
	compareWays(b, []countWay{
		{"off", off, func() {}},
		{"on", on, func() {}},
		{"watched", watching(chain0), end},
		{"another", watching("wire0"), end},
	}, func() { stream(b, firstPort) })
}

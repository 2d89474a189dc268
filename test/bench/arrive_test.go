// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// arriving is the number of packets in a round. It is large enough that the kernel's ticks of 10 ms
// cause an error of only a few percent.
const arriving = 200_000

// BenchmarkArrive sends UDP packets to one member among many. It counts the busy time of all
// processors (/proc/stat): of the sender, of softirq and of the cpumap's thread. It compares three
// ways: no filter, niclane's XDP program with a cpumap to the other processor, and a chain of u32
// filters at ingress. The metrics are thousands of packets per second of processor time, as medians
// of interleaved rounds. Other load on the machine counts too.
func BenchmarkArrive(b *testing.B) {
	vethtest.NeedRoot(b)
	dir := b.TempDir()
	addNetns(b, chainNetns)
	wire(b, 1)
	defer enter(b, chainNetns)()
	const u32 = "pref 1 u32 match ip protocol 17 0xff match ip dport %d 0xffff"
	for b.Loop() {
		for _, members := range []int{1, 10, 100, 1000} {
			cost := map[string][]float64{}
			for range 3 {
				for _, way := range []struct {
					name     string
					set, end func()
				}{
					{"none", func() {}, func() {}},
					{"cpumap", func() { steer(b, members) },
						func() { run(b, exec.Command("ip", "link", "set", chain0, "xdpgeneric", "off")) }},
					{"u32", func() { chain(b, dir, "ingress", u32, members) },
						func() { run(b, exec.Command("tc", "qdisc", "del", "dev", chain0, "clsact")) }},
				} {
					way.set()
					cost[way.name] = append(cost[way.name], arrive(b, firstPort+members-1))
					way.end()
				}
			}
			for name, cs := range cost {
				b.ReportMetric(median(cs), fmt.Sprintf("kpkt/cpu-s-%s/%d", name, members))
			}
		}
		b.ReportMetric(0, "ns/op")
	}
}

// steer writes an entry for each member into the XDP program's map. All entries lead to processor
// 1.
func steer(b *testing.B, members int) {
	b.Helper()
	objects := []device.Object{
		device.XDP{Dev: chain0, Mode: "generic", Program: bpf.IngressProgram},
		device.CPUQueue{Dev: chain0, CPU: 1, Size: 2048},
		device.CPULane{Dev: chain0, Lane: 1, CPUs: []int{1}},
	}
	for i := range members {
		objects = append(objects, device.XDPEntry{Dev: chain0, Lane: 1, Match: member(i)})
	}
	makeObjects(b, objects)
}

// arrive sends packets to a port from the other end of the veth. It returns thousands of
// packets per second of processor time.
func arrive(b *testing.B, port int) float64 {
	b.Helper()
	before := busy(b)
	packetsTo(b, port, arriving)
	return arriving / 1000 / (busy(b) - before)
}

// packetsTo sends packets to a port from the other end of the veth.
func packetsTo(b *testing.B, port, n int) {
	b.Helper()
	from := vethtest.Interface(b, "wire0")
	to := vethtest.Interface(b, chain0)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must.Do(b, err)
	defer unix.Close(fd)
	// This socket has a full buffer. Without a socket, the kernel would send ICMP answers.
	full, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(full)
		err = errors.Join(unix.SetsockoptInt(full, unix.SOL_SOCKET, unix.SO_RCVBUF, 1),
			unix.Bind(full, &unix.SockaddrInet4{Port: port}))
	}
	must.Do(b, err)
	frame := vethtest.Datagram{Source: 2, From: 9, To: uint16(port), Payload: 22}.Frame(from, to)
	address := &unix.SockaddrLinklayer{Ifindex: from.Index, Protocol: 0x0008} // ETH_P_IP in network order
	for range n {
		if err := unix.Sendto(fd, frame, 0, address); err != nil && err != unix.ENOBUFS {
			b.Fatal(err)
		}
	}
}

// busy returns the busy time of the processors in seconds (proc_stat(5)).
func busy(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/stat")
	must.Do(b, err)
	line, _, _ := strings.Cut(string(text), "\n")
	ticks := 0
	for i, f := range strings.Fields(line)[1:] {
		n, err := strconv.Atoi(f)
		must.Do(b, err)
		if i != 3 && i != 4 && i < 8 { // leave out idle and iowait (3 and 4), and guest (from 8), which user includes
			ticks += n
		}
	}
	return float64(ticks) / 100 // USER_HZ
}

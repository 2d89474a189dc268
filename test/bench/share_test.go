// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
)

// shareQueues are the transmit queues of the device of BenchmarkShare: two of the default lane, and two
// of the lane.
const shareQueues = 4

// shareLanes is the lanes file of BenchmarkShare. The link is so fast that no packet waits.
const shareLanes = `
version: 1
globals:
  dev: chain0
  link-rate: 400gbit
  queues: 2
  force: {mapper: queue-mapping%s}
lanes:
  a: {queues: 2, protocol: udp, ports: [10000-10099]%s}
`

// BenchmarkShare sends UDP packets of a lane through a veth, from one processor and from all of them. It
// compares a host without lanes (mq, with a fq_codel for each queue if the kernel has one), a lane without
// a share of the link, with its classifier at clsact and at TCX, and a lane with a share, by departure times
// and by HTB. On a kernel without fq, the packets get departure times and leave by mq. The metrics are ns of processor time per packet, from
// write(2) to the other end of the veth, as medians of interleaved rounds.
func BenchmarkShare(b *testing.B) {
	vethtest.NeedRoot(b)
	addNetns(b, chainNetns)
	defer enter(b, chainNetns)()
	k, err := apply.NewKernel("")
	must.Do(b, err)
	defer k.Close()
	lanes := func(bandwidth, share string) func() {
		return func() {
			run(b, exec.Command("tc", "qdisc", "replace", "dev", chain0, "root", "mq"))
			lanetest.Apply(b, k, fmt.Sprintf(shareLanes, bandwidth, share), lanetest.Observe(b, chain0))
		}
	}
	kernel := lanetest.Observe(b, "lo").Capabilities
	has := func(c device.Capability) bool { return kernel[c].Answer == device.Yes }
	none := func() { mq(b, has(device.CapFQCodel)) }
	const share = ", rank: 1, guarantee: 20%"
	edt := lanes(", bandwidth: edt", share)
	if !has(device.CapFQ) {
		b.Log("without fq: packets get departure times, but leave at once")
		edt = func() { none(); departures(b) }
	}
	type way struct {
		name string
		set  func()
	}
	ways := []way{{"none", none}, {"queues", lanes("", "")}, {"edt", edt}, {"htb", lanes(", bandwidth: htb", share)}}
	if has(device.CapTCX) {
		ways = append(ways, way{"queues-tcx", lanes(", classifier: tcx", "")})
	}
	senders := []int{1}
	for n := 2; n <= runtime.NumCPU(); n *= 2 {
		senders = append(senders, n)
	}
	took := map[string][]float64{}
	for b.Loop() {
		for range rounds {
			for _, w := range ways {
				wire(b, shareQueues)
				w.set()
				for _, n := range senders {
					of := fmt.Sprintf("%s/%d", w.name, n)
					took[of] = append(took[of], streams(b, n))
				}
				run(b, exec.Command("ip", "link", "del", chain0))
			}
		}
		for of, ns := range took {
			b.ReportMetric(median(ns), "ns-"+of)
		}
		b.ReportMetric(0, "ns/op")
	}
}

// mq is what a host without lanes has.
func mq(b *testing.B, codel bool) {
	run(b, exec.Command("tc", "qdisc", "replace", "dev", chain0, "root", "handle", "1:", "mq"))
	if !codel {
		return
	}
	for q := range shareQueues {
		run(b, exec.Command("tc", "qdisc", "replace", "dev", chain0, "parent", fmt.Sprintf("1:%x", q+1), "fq_codel"))
	}
}

// departures attaches the classifier that gives the lane's packets departure times.
func departures(b *testing.B) {
	const rate = 392e9 // 98 % of 400 Gbit/s
	run(b, exec.Command("tc", "qdisc", "add", "dev", chain0, "clsact"))
	filter := device.Filter{Dev: chain0, Parent: "egress", Pref: 1, Handle: 1, Program: bpf.EgressProgram}
	objects := []device.Object{filter,
		device.FilterLink{Filter: filter.Key(), Rate: rate, Horizon: 10e6, Mark: 1e6, Ranks: []int{1, 7}},
		device.FilterShare{Filter: filter.Key(), Lane: 1, Rank: 1, Guarantee: rate / 5, Part: rate / 2}}
	for i := range 100 {
		objects = append(objects, device.FilterEntry{Filter: filter.Key(), Priority: "1:10", Lane: 1, Match: member(i)})
	}
	makeObjects(b, objects)
}

// streams sends packets from n processors, and returns the ns of their time that each packet took.
func streams(b *testing.B, n int) float64 {
	b.Helper()
	var all sync.WaitGroup
	took, errs := make([]int64, n), make([]error, n)
	for i := range n {
		all.Go(func() {
			runtime.LockOSThread() // the thread ends with this function
			took[i], errs[i] = streamOn(i)
		})
	}
	all.Wait()
	var sum int64
	for i := range n {
		must.Do(b, errs[i])
		sum += took[i]
	}
	return float64(sum) / float64(n*packets)
}

// streamOn moves the thread to a processor and into the namespace. It sends packets from a port of its
// own, and returns the processor time.
func streamOn(cpu int) (ns int64, err error) {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return 0, err
	}
	there, err := unix.Open("/run/netns/"+chainNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(there)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return 0, err
	}
	fd, err := connected(firstPort + cpu)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	p := make([]byte, 64)
	var began, ended unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &began); err != nil {
		return 0, err
	}
	for range packets {
		if _, err := unix.Write(fd, p); err != nil {
			return 0, err
		}
	}
	err = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ended)
	return ended.Nano() - began.Nano(), err
}

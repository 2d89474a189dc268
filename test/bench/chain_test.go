// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// The members' ports begin at firstPort. The packets are sent from the port that a chain of filters
// compares last.
const (
	chainNetns = "niclane-chain"
	firstPort  = 10000
	packets    = 10000
)

// BenchmarkChain sends UDP packets of one member among many through the egress hook of a veth. It
// compares no filter, niclane's classifier, and three kinds of filters that scripts use: u32
// filters in a list; flower filters with one preference, which the kernel looks up in one hash
// table; and flower filters without a preference. To each of the last, the kernel gives a
// preference of its own, and it checks them one after the other, the latest first. The metrics are
// ns per packet on one processor, from write(2) to the other end of the veth, as medians of
// interleaved rounds.
func BenchmarkChain(b *testing.B) {
	vethtest.NeedRoot(b)
	dir := b.TempDir()
	addNetns(b, chainNetns)
	wire(b, 1)
	defer enter(b, chainNetns)()
	const (
		u32       = "pref 1 u32 match ip protocol 17 0xff match ip sport %d 0xffff"
		flower    = "pref 1 flower ip_proto udp src_port %d"
		flowerOwn = "flower ip_proto udp src_port %d"
	)
	bare := func() { run(b, exec.Command("tc", "qdisc", "del", "dev", chain0, "clsact")) }
	type way struct {
		name string
		set  func(members int)
		end  func()
		port func(members int) int // port from which the packets are sent
	}
	first := func(int) int { return firstPort }
	last := func(members int) int { return firstPort + members - 1 }
	ways := []way{
		{"none", func(int) {}, func() {}, last},
		{"niclane", func(members int) { own(b, members) }, bare, last},
		{"u32", func(members int) { chain(b, dir, "egress", u32, members) }, bare, last},
	}
	if hasFlower(b) {
		ways = append(ways,
			way{"flower", func(members int) { chain(b, dir, "egress", flower, members) }, bare, last},
			way{"flower-own-preferences", func(members int) { chain(b, dir, "egress", flowerOwn, members) }, bare,
				first})
	}
	for b.Loop() {
		for _, members := range []int{1, 10, 100, 1000} {
			took := map[string][]time.Duration{}
			for range rounds {
				for _, w := range ways {
					w.set(members)
					took[w.name] = append(took[w.name], stream(b, w.port(members)))
					w.end()
				}
			}
			for name, ds := range took {
				b.ReportMetric(float64(median(ds).Nanoseconds())/packets, fmt.Sprintf("ns-%s/%d", name, members))
			}
		}
		b.ReportMetric(0, "ns/op")
	}
}

// hasFlower reports whether the kernel has flower. If not, it writes that to the log.
func hasFlower(b *testing.B) bool {
	run(b, exec.Command("tc", "qdisc", "add", "dev", chain0, "clsact"))
	out, err := exec.Command("tc", "filter", "add", "dev", chain0, "egress", "protocol", "ip",
		"flower").CombinedOutput()
	run(b, exec.Command("tc", "qdisc", "del", "dev", chain0, "clsact"))
	if err != nil {
		b.Logf("without flower: %s", out)
	}
	return err == nil
}

const chain0 = "chain0"

// wire makes a veth with so many queues. Its other end drops all packets, because they are sent to another
// address.
func wire(b *testing.B, queues int) {
	b.Helper()
	n := fmt.Sprintf(" numtxqueues %[1]d numrxqueues %[1]d ", queues)
	for _, line := range []string{
		"link add " + chain0 + n + "type veth peer name wire0" + n,
		"addr add 10.9.0.1/24 dev " + chain0,
		"link set " + chain0 + " up",
		"link set wire0 up",
		"neigh add 10.9.0.2 lladdr 02:00:00:00:00:99 nud permanent dev " + chain0,
	} {
		run(b, exec.Command("ip", append([]string{"-n", chainNetns}, strings.Fields(line)...)...))
	}
}

// enter moves the calling thread into a network namespace. The returned function moves it back.
func enter(b *testing.B, name string) func() {
	b.Helper()
	runtime.LockOSThread()
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must.Do(b, err)
		return fd
	}
	home, there := open("/proc/thread-self/ns/net"), open("/run/netns/"+name)
	defer unix.Close(there)
	must.Do(b, unix.Setns(there, unix.CLONE_NEWNET))
	return func() {
		must.Do(b, unix.Setns(home, unix.CLONE_NEWNET))
		unix.Close(home)
		runtime.UnlockOSThread()
	}
}

// own writes an entry for each member into the map of niclane's classifier.
func own(b *testing.B, members int) {
	b.Helper()
	run(b, exec.Command("tc", "qdisc", "add", "dev", chain0, "clsact"))
	filter := device.Filter{Dev: chain0, Parent: "egress", Pref: 1, Handle: 1, Program: bpf.EgressProgram}
	objects := []device.Object{filter}
	for i := range members {
		objects = append(objects, device.FilterEntry{Filter: filter.Key(), Priority: "1:10", Match: member(i)})
	}
	makeObjects(b, objects)
}

// member returns the match of member i.
func member(i int) device.Match {
	return device.Match{Family: 4, Protocol: "udp", LocalPort: uint16(firstPort + i)}
}

// makeObjects attaches niclane's programs and writes the entries of their maps.
func makeObjects(b *testing.B, objects []device.Object) {
	b.Helper()
	c, err := tc.Open()
	must.Do(b, err)
	defer c.Close()
	k := bpf.New(c)
	defer k.Close()
	for _, o := range objects {
		must.Do(b, k.Write(nil, o))
	}
}

// chain adds a filter for each member to a hook of clsact. how is the filter for tc, with a format
// verb for the member's port.
func chain(b *testing.B, dir, hook, how string, members int) {
	b.Helper()
	var s strings.Builder
	fmt.Fprintf(&s, "qdisc add dev %s clsact\n", chain0)
	for i := range members {
		fmt.Fprintf(&s, "filter add dev %s %s protocol ip "+how+" flowid 1:10\n", chain0, hook, firstPort+i)
	}
	path := filepath.Join(dir, "chain")
	write(b, path, s.String())
	run(b, exec.Command("tc", "-batch", path))
}

// stream sends packets from a port and returns the elapsed time.
func stream(b *testing.B, port int) time.Duration {
	b.Helper()
	fd, err := connected(port)
	must.Do(b, err)
	defer unix.Close(fd)
	p := make([]byte, 64)
	began := time.Now()
	for range packets {
		if _, err := unix.Write(fd, p); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

// connected returns a socket that sends from a port through the wire.
func connected(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{10, 9, 0, 1}})
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 9, 0, 2}})
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

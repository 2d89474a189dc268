// SPDX-License-Identifier: Apache-2.0

// Package bed has the common parts of tests on the simulated card. It plugs in a card, sends
// packets to it from the other end of the wire, and reads the card's counters. The card is a kernel
// module, so the tests run in guests.
package bed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// Names of the card, of the interface at the other end of its wire, and of the network namespace at
// that end.
const (
	Dev  = "sim0"
	Wire = "wire0"
	Peer = "wire"
)

// Addresses of the card and of the host at the other end of the wire.
var (
	CardAddr  = netip.MustParseAddr("10.9.0.1")
	WireAddr  = netip.MustParseAddr("10.9.0.2")
	CardAddr6 = netip.MustParseAddr("fd09::1")
	WireAddr6 = netip.MustParseAddr("fd09::2")
)

// Guest returns the path of the card's module. It skips a test that does not run in a guest.
func Guest(t *testing.T) (module string) {
	t.Helper()
	module = os.Getenv("NICLANE_SIMCARD")
	if module == "" {
		t.Skip("NICLANE_SIMCARD does not name the module: run it by go run ./test/simcard/run")
	}
	return module
}

// Plug loads the module with parameters and brings both ends of the wire up. At the end of the
// test, the module is removed.
func Plug(t *testing.T, params ...string) {
	t.Helper()
	module := Guest(t)
	f, err := os.Open(module)
	must.Do(t, err)
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), strings.Join(params, " "), 0); err != nil {
		t.Fatalf("loading %s %v: %v", module, params, err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat("/sys/module/simcard"); err == nil {
			Unplug(t)
		}
	})
	Run(t, "ip", "netns", "add", Peer)
	Run(t, "ip", "link", "set", Wire, "netns", Peer)
	// Only packets of the tests may pass. Neighbour entries are permanent, and a filter drops IPv6
	// multicast (group reports, router discovery).
	Sh(t, "ip netns exec wire tc qdisc add dev wire0 clsact")
	Sh(t, "ip netns exec wire tc filter add dev wire0 egress protocol all flower dst_mac "+
		"33:33:00:00:00:00/ff:ff:00:00:00:00 action drop")
	for _, end := range []struct {
		prefix      []string
		dev         string
		addr, addr6 netip.Addr
	}{
		{nil, Dev, CardAddr, CardAddr6},
		{[]string{"ip", "netns", "exec", Peer}, Wire, WireAddr, WireAddr6},
	} {
		script := fmt.Sprintf("echo 0 >/proc/sys/net/ipv6/conf/%[1]s/accept_dad; echo 1 "+
			">/proc/sys/net/ipv6/conf/%[1]s/addr_gen_mode; "+
			"ip addr add %[2]s/24 dev %[1]s; ip -6 addr add %[3]s/64 dev %[1]s nodad; ip link set %[1]s up", end.dev,
			end.addr, end.addr6)
		Run(t, append(end.prefix, "sh", "-ec", script)...)
	}
	mac := map[string]string{Dev: "02:6e:6c:00:00:01", Wire: "02:6e:6c:00:00:02"}
	Run(t, "sh", "-ec", fmt.Sprintf("ip neigh replace %s lladdr %s dev %s; ip neigh replace %s lladdr %[2]s dev %[3]s",
		WireAddr, mac[Wire], Dev, WireAddr6))
	Run(t, "ip", "netns", "exec", Peer, "sh", "-ec",
		fmt.Sprintf("ip neigh replace %s lladdr %s dev %s; ip neigh replace %s lladdr %[2]s dev %[3]s", CardAddr,
			mac[Dev], Wire, CardAddr6))
	Until(t, "the carrier", func() bool { return Read(t, "/sys/class/net/"+Dev+"/carrier") == "1" })
}

// Unplug removes the card and the namespace at the other end of its wire.
func Unplug(t *testing.T) {
	t.Helper()
	// When a namespace is deleted, the kernel moves the wire's interface back to this one.
	Run(t, "ip", "netns", "del", Peer)
	if err := unix.DeleteModule("simcard", 0); err != nil {
		t.Errorf("unloading: %v", err)
	}
}

// Run runs a command and returns its output.
func Run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// Sh runs a command line, which must not contain quotes, and returns its output.
func Sh(t *testing.T, line string) string {
	t.Helper()
	return Run(t, strings.Fields(line)...)
}

// Refused runs a command that must fail, and returns its output. A message of failure is enough,
// because ethtool -N of Debian 12 exits with 0 when it fails.
func Refused(t *testing.T, line string) string {
	t.Helper()
	argv := strings.Fields(line)
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err == nil && !strings.Contains(string(out), "rmgr: Cannot") {
		t.Errorf("%s: not refused: %s", line, out)
	}
	return string(out)
}

// Says fails the test unless a text contains all of the words.
func Says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in:\n%s", w, text)
		}
	}
}

// NotOn skips the test if the kernel's release begins with one of releases.
func NotOn(t *testing.T, releases ...string) {
	t.Helper()
	for _, r := range releases {
		if strings.HasPrefix(Read(t, "/proc/sys/kernel/osrelease"), r) {
			t.Skip("not in this kernel")
		}
	}
}

// Read returns the content of a file; if it cannot be read, the text of the error.
func Read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// Write writes a file.
func Write(t *testing.T, file, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), 0))
}

// Param sets a parameter of the loaded module.
func Param(t *testing.T, name, value string) {
	t.Helper()
	Write(t, "/sys/module/simcard/parameters/"+name, value)
}

// Until waits until done returns true.
func Until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s: not within a minute", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Behind runs f on a thread that is in the network namespace at the other end of the wire. Sockets
// that f opens stay in that namespace.
func Behind(t *testing.T, f func()) {
	t.Helper()
	Within(t, Peer, f)
}

// Within runs f on a thread that is in a network namespace.
func Within(t *testing.T, namespace string, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	must.Do(t, err)
	defer own.Close()
	other, err := netns.GetFromName(namespace)
	must.Do(t, err)
	defer other.Close()
	must.Do(t, netns.Set(other))
	defer func() {
		if err := netns.Set(own); err != nil {
			panic(err)
		}
	}()
	f()
}

// Stats returns the counters that ethtool -S shows. It asks the kernel directly: tests call it
// often, and starting a program in an emulated guest is slow.
func Stats(t *testing.T) map[string]uint64 {
	t.Helper()
	const (
		getStrings = 0x1b // ETHTOOL_GSTRINGS
		getStats   = 0x1d // ETHTOOL_GSTATS
		setInfo    = 0x37 // ETHTOOL_GSSET_INFO
		setStats   = 1    // ETH_SS_STATS
		nameLen    = 32   // ETH_GSTRING_LEN
	)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	ask := func(data []byte) {
		var req struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(req.name[:], Dev)
		req.data = unsafe.Pointer(&data[0])
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&req))); errno != 0 {
			t.Fatalf("SIOCETHTOOL %#x on %s: %v", binary.NativeEndian.Uint32(data), Dev, errno)
		}
	}
	info := binary.NativeEndian.AppendUint32(nil, setInfo)
	info = binary.NativeEndian.AppendUint32(info, 0)
	info = binary.NativeEndian.AppendUint64(info, 1<<setStats)
	info = binary.NativeEndian.AppendUint32(info, 0)
	ask(info)
	n := binary.NativeEndian.Uint32(info[16:])
	names := make([]byte, 12+n*nameLen)
	for i, v := range []uint32{getStrings, setStats, n} {
		binary.NativeEndian.PutUint32(names[4*i:], v)
	}
	ask(names)
	values := make([]byte, 8+n*8)
	binary.NativeEndian.PutUint32(values, getStats)
	binary.NativeEndian.PutUint32(values[4:], n)
	ask(values)
	s := map[string]uint64{}
	for i := range n {
		name, _, _ := bytes.Cut(names[12+i*nameLen:][:nameLen], []byte{0})
		s[string(name)] = binary.NativeEndian.Uint64(values[8+i*8:])
	}
	return s
}

// PerQueue returns by how much a counter of each of n queues has grown since before.
func PerQueue(t *testing.T, before map[string]uint64, format string, n int) []uint64 {
	t.Helper()
	after := Stats(t)
	var counts []uint64
	for i := range n {
		name := fmt.Sprintf(format, i)
		if _, ok := after[name]; !ok {
			t.Fatalf("ethtool -S has no %s", name)
		}
		counts = append(counts, after[name]-before[name])
	}
	return counts
}

// Sum returns the sum of counts.
func Sum(counts []uint64) (total uint64) {
	for _, c := range counts {
		total += c
	}
	return total
}

// A Flow is a UDP flow between the card and the host at the other end of the wire.
type Flow struct {
	Src, Dst netip.AddrPort
}

// In returns a flow toward the card.
func In(sport, dport uint16) Flow {
	return Flow{netip.AddrPortFrom(WireAddr, sport), netip.AddrPortFrom(CardAddr, dport)}
}

// In6 returns a flow toward the card over IPv6.
func In6(sport, dport uint16) Flow {
	return Flow{netip.AddrPortFrom(WireAddr6, sport), netip.AddrPortFrom(CardAddr6, dport)}
}

// Back returns the flow in the other direction.
func (f Flow) Back() Flow { return Flow{f.Dst, f.Src} }

// Dial connects a socket for f. Call it in the network namespace of f.Src.
func (f Flow) Dial(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(f.Src), net.UDPAddrFromAddrPort(f.Dst))
	must.Do(t, err)
	return c
}

// ToAll returns flows to a port of the card. There are so many that each of the card's queues gets
// some.
//
// The card's hash is linear in the bits of the ports, and its key is random at each boot. With 64
// flows whose ports have most bits in common, one key in 260 leaves a queue without flows.
func ToAll(port uint16) (flows []Flow) {
	for i := range uint16(256) {
		flows = append(flows, In(1024+i*251, port))
	}
	return flows
}

// PolledInPairs sends flows to all queues from first to last. It fails unless the NAPI of each even
// queue also polls the next queue.
func PolledInPairs(t *testing.T, port uint16, first, last int) {
	t.Helper()
	before := Stats(t)
	Send(t, 1, ToAll(port)...)
	received, interrupts := PerQueue(t, before, "rx_queue_%d_packets", 8), PerQueue(t, before, "queue_%d_interrupts", 8)
	for q := first; q <= last; q++ {
		if received[q] == 0 || (interrupts[q] > 0) != (q%2 == 0) {
			t.Errorf("queue %d: received %d, interrupts %d; want the even ones to have all", q, received[q],
				interrupts[q])
		}
	}
}

// Send sends n datagrams of each flow toward the card. It waits until the card has received all of
// them.
func Send(t *testing.T, n int, flows ...Flow) {
	t.Helper()
	sent := len(flows) * n
	before := Stats(t)
	arrived := func() uint64 {
		return Sum(PerQueue(t, before, "rx_queue_%d_packets", QueueCount(t))) +
			Stats(t)["rx_filtered"] - before["rx_filtered"]
	}
	Behind(t, func() {
		for _, f := range flows {
			c := f.Dial(t)
			for range n {
				_, err := c.Write([]byte("hello"))
				for IsRefused(err) {
					_, err = c.Write([]byte("hello"))
				}
				must.Do(t, err)
			}
			c.Close()
		}
	})
	Until(t, fmt.Sprintf("%d datagrams", sent), func() bool { return arrived() >= uint64(sent) })
}

// IsRefused reports whether a write failed because an earlier datagram went to a closed port
// (ICMP). Then this write has not sent anything.
func IsRefused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// QueueCount returns the number of queues that ethtool -S shows.
func QueueCount(t *testing.T) int {
	t.Helper()
	s := Stats(t)
	for n := 0; ; n++ {
		if _, ok := s[fmt.Sprintf("rx_queue_%d_packets", n)]; !ok {
			return n
		}
	}
}

// Flood sends UDP from the card to ports at the other end of the wire, until stop returns true.
// Each port gets a connection of its own.
func Flood(t *testing.T, ports []uint16, setup func(*net.UDPConn), stop func() bool) {
	t.Helper()
	FloodOn(t, Dial(t, ports, setup), stop)
}

// Dial returns a socket for each port at the other end of the wire.
func Dial(t *testing.T, ports []uint16, setup func(*net.UDPConn)) (all []*net.UDPConn) {
	t.Helper()
	for _, port := range ports {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(WireAddr, port)))
		must.Do(t, err)
		if setup != nil {
			setup(c)
		}
		all = append(all, c)
	}
	return all
}

// FloodOn is Flood on sockets, which it closes.
func FloodOn(t *testing.T, conns []*net.UDPConn, stop func() bool) {
	t.Helper()
	quit := make(chan struct{})
	done := make(chan error)
	for _, c := range conns {
		go func() {
			defer c.Close()
			data := make([]byte, 1400)
			for {
				select {
				case <-quit:
					done <- nil
					return
				default:
				}
				c.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := c.Write(data); err != nil && !IsRefused(err) && !os.IsTimeout(err) &&
					!errors.Is(err, unix.ENOBUFS) {
					done <- err
					return
				}
			}
		}()
	}
	Until(t, "enough traffic", stop)
	close(quit)
	for range conns {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Sink listens on ports at the other end of the wire. So no ICMP answers come from closed ports.
func Sink(t *testing.T, ports ...uint16) {
	t.Helper()
	for _, p := range ports {
		Listen(t, netip.AddrPortFrom(WireAddr, p))
	}
}

// Listen listens at an address at the other end of the wire, until the test ends.
func Listen(t *testing.T, at netip.AddrPort) (c *net.UDPConn) {
	t.Helper()
	Behind(t, func() {
		var err error
		if c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	})
	return c
}

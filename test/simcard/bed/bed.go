// SPDX-License-Identifier: Apache-2.0

package conformance

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
)

const (
	dev  = "sim0"
	wire = "wire0"
	peer = "wire" // the namespace of the other end
)

// Addresses of the card, and of what is behind the wire.
var (
	cardAddr  = netip.MustParseAddr("10.9.0.1")
	wireAddr  = netip.MustParseAddr("10.9.0.2")
	cardAddr6 = netip.MustParseAddr("fd09::1")
	wireAddr6 = netip.MustParseAddr("fd09::2")
)

// plug loads the module with parameters and brings both ends up. All is undone
// at the test's end.
func plug(t *testing.T, params ...string) {
	t.Helper()
	module := os.Getenv("NICLANE_SIMCARD")
	if module == "" {
		t.Skip("NICLANE_SIMCARD does not name the module: run it by go run ./test/simcard/run")
	}
	f, err := os.Open(module)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), strings.Join(params, " "), 0); err != nil {
		t.Fatalf("loading %s %v: %v", module, params, err)
	}
	t.Cleanup(func() {
		// The namespace's end gives the wire back to this one.
		run(t, "ip", "netns", "del", peer)
		if err := unix.DeleteModule("simcard", 0); err != nil {
			t.Errorf("unloading: %v", err)
		}
	})
	run(t, "ip", "netns", "add", peer)
	run(t, "ip", "link", "set", wire, "netns", peer)
	// Nothing but what the tests send: neighbours are known, and IPv6's multicast
	// (reports of groups, router discovery) does not get out.
	sh(t, "ip netns exec wire tc qdisc add dev wire0 clsact")
	sh(t, "ip netns exec wire tc filter add dev wire0 egress protocol all flower dst_mac 33:33:00:00:00:00/ff:ff:00:00:00:00 action drop")
	for _, end := range []struct {
		prefix      []string
		dev         string
		addr, addr6 netip.Addr
	}{
		{nil, dev, cardAddr, cardAddr6},
		{[]string{"ip", "netns", "exec", peer}, wire, wireAddr, wireAddr6},
	} {
		script := fmt.Sprintf("echo 0 >/proc/sys/net/ipv6/conf/%[1]s/accept_dad; echo 1 >/proc/sys/net/ipv6/conf/%[1]s/addr_gen_mode; "+
			"ip addr add %[2]s/24 dev %[1]s; ip -6 addr add %[3]s/64 dev %[1]s nodad; ip link set %[1]s up", end.dev, end.addr, end.addr6)
		run(t, append(end.prefix, "sh", "-ec", script)...)
	}
	mac := map[string]string{dev: "02:6e:6c:00:00:01", wire: "02:6e:6c:00:00:02"}
	run(t, "sh", "-ec", fmt.Sprintf("ip neigh replace %s lladdr %s dev %s; ip neigh replace %s lladdr %[2]s dev %[3]s", wireAddr, mac[wire], dev, wireAddr6))
	run(t, "ip", "netns", "exec", peer, "sh", "-ec",
		fmt.Sprintf("ip neigh replace %s lladdr %s dev %s; ip neigh replace %s lladdr %[2]s dev %[3]s", cardAddr, mac[dev], wire, cardAddr6))
	until(t, "the carrier", func() bool { return read(t, "/sys/class/net/"+dev+"/carrier") == "1" })
}

// run runs a command and returns what it prints.
func run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// sh is run of a line without quotes.
func sh(t *testing.T, line string) string {
	t.Helper()
	return run(t, strings.Fields(line)...)
}

// refused runs a command that must fail, and returns what it prints. ethtool -N
// of Debian 12 ends with 0 when it fails.
func refused(t *testing.T, line string) string {
	t.Helper()
	argv := strings.Fields(line)
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err == nil && !strings.Contains(string(out), "rmgr: Cannot") {
		t.Errorf("%s: not refused: %s", line, out)
	}
	return string(out)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// param sets a parameter of the loaded module.
func param(t *testing.T, name, value string) {
	t.Helper()
	write(t, "/sys/module/simcard/parameters/"+name, value)
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s: not within a minute", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// behind runs f on a thread in the namespace behind the wire. Sockets made
// there stay there.
func behind(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	other, err := netns.GetFromName(peer)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := netns.Set(other); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(own); err != nil {
			panic(err)
		}
	}()
	f()
}

// stats are the counters that ethtool -S shows. Tests ask for them again and
// again, and starting a program in an emulated guest takes long.
func stats(t *testing.T) map[string]uint64 {
	t.Helper()
	const (
		getStrings = 0x1b // ETHTOOL_GSTRINGS
		getStats   = 0x1d // ETHTOOL_GSTATS
		setInfo    = 0x37 // ETHTOOL_GSSET_INFO
		setStats   = 1    // ETH_SS_STATS
		nameLen    = 32   // ETH_GSTRING_LEN
	)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ask := func(data []byte) {
		var req struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(req.name[:], dev)
		req.data = unsafe.Pointer(&data[0])
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
			t.Fatalf("SIOCETHTOOL %#x on %s: %v", binary.NativeEndian.Uint32(data), dev, errno)
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

// perQueue returns a counter of n queues, what was there before taken off.
func perQueue(t *testing.T, before map[string]uint64, format string, n int) []uint64 {
	t.Helper()
	after := stats(t)
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

func sum(counts []uint64) (total uint64) {
	for _, c := range counts {
		total += c
	}
	return total
}

// A flow of UDP from behind the wire to the card, or back.
type flow struct {
	src, dst netip.AddrPort
}

// in is a flow towards the card.
func in(sport, dport uint16) flow {
	return flow{netip.AddrPortFrom(wireAddr, sport), netip.AddrPortFrom(cardAddr, dport)}
}

func in6(sport, dport uint16) flow {
	return flow{netip.AddrPortFrom(wireAddr6, sport), netip.AddrPortFrom(cardAddr6, dport)}
}

// send sends n datagrams of each flow towards the card, and waits until the
// card has received all.
func send(t *testing.T, n int, flows ...flow) {
	t.Helper()
	sent := len(flows) * n
	before := stats(t)
	arrived := func() uint64 {
		return sum(perQueue(t, before, "rx_queue_%d_packets", queueCount(t))) + stats(t)["rx_filtered"] - before["rx_filtered"]
	}
	behind(t, func() {
		for _, f := range flows {
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(f.src), net.UDPAddrFromAddrPort(f.dst))
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				_, err := c.Write([]byte("hello"))
				for isRefused(err) {
					_, err = c.Write([]byte("hello"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
		}
	})
	until(t, fmt.Sprintf("%d datagrams", sent), func() bool { return arrived() >= uint64(sent) })
}

// isRefused is true of the answer to an earlier datagram that nobody listened
// for. What was to be written is not sent.
func isRefused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// queueCount is how many queues ethtool -S shows.
func queueCount(t *testing.T) int {
	t.Helper()
	s := stats(t)
	for n := 0; ; n++ {
		if _, ok := s[fmt.Sprintf("rx_queue_%d_packets", n)]; !ok {
			return n
		}
	}
}

// flood sends UDP from the card to the ports behind the wire, each by a
// connection of its own, until stop says so.
func flood(t *testing.T, ports []uint16, setup func(*net.UDPConn), stop func() bool) {
	t.Helper()
	quit := make(chan struct{})
	done := make(chan error)
	for _, port := range ports {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(wireAddr, port)))
		if err != nil {
			t.Fatal(err)
		}
		if setup != nil {
			setup(c)
		}
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
				if _, err := c.Write(data); err != nil && !isRefused(err) && !os.IsTimeout(err) && !errors.Is(err, unix.ENOBUFS) {
					done <- err
					return
				}
			}
		}()
	}
	until(t, "enough traffic", stop)
	close(quit)
	for range ports {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// sink listens behind the wire, so that nothing answers that a port is closed.
func sink(t *testing.T, ports ...uint16) {
	t.Helper()
	behind(t, func() {
		for _, p := range ports {
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(wireAddr, p)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}
	})
}

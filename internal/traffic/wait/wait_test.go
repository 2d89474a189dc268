// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

const (
	tcp  = unix.IPPROTO_TCP
	udp  = unix.IPPROTO_UDP
	port = 11211
)

func namespace(t *testing.T) uint32 {
	t.Helper()
	var ns unix.Stat_t
	must.Do(t, unix.Stat("/proc/thread-self/ns/net", &ns))
	return uint32(ns.Ino)
}

// open opens and attaches the programs for services of this namespace at port.
func open(t *testing.T, o Options) *Programs {
	t.Helper()
	vethtest.NeedRoot(t)
	vethtest.SetUp(t, "lo", true)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must.Do(t, err)
	o.CgroupRoot = cgroup.Parse(string(mounts)).V2
	for i := range o.Services {
		o.Services[i].NetNS, o.Services[i].Ports = namespace(t), []uint16{port}
	}
	p, err := Open(o)
	if _, without := os.Stat("/sys/kernel/btf/vmlinux"); without != nil && errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, p.Attach())
	must.Do(t, p.Threads(true))
	return p
}

// until waits until the service with number i has n requests, and returns its reading.
func until(t *testing.T, p *Programs, i, n int) (r Reading) {
	t.Helper()
	vethtest.Until(t, "the requests are counted", func() bool {
		all, err := p.Read(i + 1)
		must.Do(t, err)
		r = all[i]
		return r.Requests >= uint64(n)
	})
	if r.Requests != uint64(n) {
		t.Errorf("%d requests, want %d", r.Requests, n)
	}
	return r
}

func count(times []uint64) (n uint64) {
	for _, c := range times {
		n += c
	}
	return n
}

// connect returns the two ends of a TCP connection to port.
func connect(t *testing.T) (client, server net.Conn) { return connectTo(t, "127.0.0.1") }

func connectTo(t *testing.T, addr string) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(addr), port).String())
	must.Do(t, err)
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	must.Do(t, err)
	server, err = l.Accept()
	must.Do(t, err)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func write(t *testing.T, c net.Conn, n int) {
	t.Helper()
	_, err := c.Write(make([]byte, n))
	must.Do(t, err)
}

func read(t *testing.T, c net.Conn, n int) {
	t.Helper()
	must.Do(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := io.ReadFull(c, make([]byte, n))
	must.Do(t, err)
}

// TestPairs: requests are paired with their answers in each order of events.
func TestPairs(t *testing.T) {
	for name, c := range map[string]struct {
		events    string // client writes c, server reads r, server writes w, client reads the answer a
		requests  int
		pipelined uint64
	}{
		"one":                         {"crwa", 1, 0},
		"one after the other":         {"crwacrwacrwa", 3, 0},
		"an answer in two parts":      {"crwwaa", 1, 0},
		"a request that is read late": {"crwacrwa", 2, 0},
		"the next before the answer":  {"crcwarwa", 2, 1},
		"two read one by one":         {"ccrrwa", 1, 1},
		"no request":                  {"wawa", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, Options{Services: []Service{{Protocol: tcp}}})
			client, server := connect(t)
			for _, e := range c.events {
				switch e {
				case 'c':
					write(t, client, 64)
				case 'r':
					read(t, server, 64)
				case 'w':
					write(t, server, 64)
				case 'a':
					read(t, client, 64)
				}
			}
			r := until(t, p, 0, c.requests)
			if r.Pipelined != c.pipelined {
				t.Errorf("%d pipelined, want %d", r.Pipelined, c.pipelined)
			}
			for stage, times := range r.Times {
				if n := count(times); stage != 5 && n != uint64(c.requests) { // 5: no completions on lo
					t.Errorf("stage %d: %d times, want %d", stage, n, c.requests)
				}
			}
		})
	}
}

// TestNoTimestamps: requests of a device that stamps nothing are followed, also with a relation of a
// clock. test/simcard/lanes has a card that stamps.
func TestNoTimestamps(t *testing.T) {
	p := open(t, Options{Services: []Service{{Protocol: tcp}}})
	lo, err := net.InterfaceByName("lo")
	must.Do(t, err)
	var now unix.Timespec
	must.Do(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	must.Do(t, p.SetCardClock(lo.Index, &CardClock{Mono: now.Nano(), PHC: 1}))
	client, server := connect(t)
	for range 3 {
		write(t, client, 64)
		read(t, server, 64)
		write(t, server, 64)
		read(t, client, 64)
	}
	if r := until(t, p, 0, 3); r.Stamped != 0 || count(r.Times[0]) != 3 {
		t.Errorf("%d stamped, %d times at the card", r.Stamped, count(r.Times[0]))
	}
	for range 2 { // the second time, there is none
		must.Do(t, p.SetCardClock(lo.Index, nil))
	}
}

// TestDatagrams: a request and the answer to the same peer are a pair, also of a connected socket and
// over IPv6.
func TestDatagrams(t *testing.T) {
	for name, c := range map[string]struct {
		addr      string
		connected bool
	}{
		"IPv4":      {"127.0.0.1", false},
		"IPv6":      {"::1", false},
		"connected": {"127.0.0.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, Options{Services: []Service{{Protocol: udp}}})
			if p.root == "" {
				t.Skip("no control groups of version 2")
			}
			if c.connected && !has(p, "sock_recv_length") {
				t.Skip("Linux before 6.3 does not show reads of connected sockets")
			}
			addr := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.addr), port))
			client, err := net.DialUDP("udp", nil, addr)
			must.Do(t, err)
			defer client.Close()
			var server *net.UDPConn
			if c.connected {
				client.Close()
				server, err = net.DialUDP("udp", addr, client.LocalAddr().(*net.UDPAddr))
				must.Do(t, err)
				client, err = net.DialUDP("udp", client.LocalAddr().(*net.UDPAddr), addr)
			} else {
				server, err = net.ListenUDP("udp", addr)
			}
			must.Do(t, err)
			defer server.Close()
			defer client.Close()
			b := make([]byte, 100)
			for range 5 {
				write(t, client, 64)
				if c.connected {
					_, err = server.Read(b)
					must.Do(t, err)
					write(t, server, 64)
				} else {
					_, from, err := server.ReadFromUDP(b)
					must.Do(t, err)
					_, err = server.WriteToUDP(b[:64], from)
					must.Do(t, err)
				}
				read(t, client, 64)
			}
			r := until(t, p, 0, 5)
			want := uint64(0) // without sk_data_ready, which came with sock_recv_length
			if has(p, "sk_data_ready") {
				want = 5
			}
			if n := count(r.Times[1]); n != want {
				t.Errorf("%d times to the socket, want %d", n, want)
			}
		})
	}
}

func has(p *Programs, tracepoint string) bool {
	for _, h := range p.Has {
		if h == tracepoint {
			return true
		}
	}
	return false
}

// TestServices: the most specific address decides which service a socket is of; other namespaces'
// sockets are of none.
func TestServices(t *testing.T) {
	p := open(t, Options{Services: []Service{
		{Protocol: tcp},
		{Protocol: tcp, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		{Protocol: udp},
	}})
	client, server := connect(t)
	write(t, client, 64)
	read(t, server, 64)
	write(t, server, 64)
	until(t, p, 1, 1)
	until(t, p, 0, 0)
	readers, err := p.Readers()
	must.Do(t, err)
	if len(readers) != 1 || readers[0] != (Reader{1, uint32(os.Getpid())}) {
		t.Errorf("readers %v, want process %d of service 1", readers, os.Getpid())
	}
	vethtest.Run(t, 1, func(t *testing.T) {
		client, server := connect(t)
		write(t, client, 64)
		read(t, server, 64)
		write(t, server, 64)
		read(t, client, 64)
	})
	until(t, p, 0, 0)
}

// TestShortConnections: a connection is of its own service, also if its socket has the memory of an earlier
// one, whose end the programs may not have seen.
func TestShortConnections(t *testing.T) {
	p := open(t, Options{Services: []Service{
		{Protocol: tcp, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
		{Protocol: tcp, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}},
	}})
	const each = 50
	for i := range 2 * each {
		client, server := connectTo(t, []string{"127.0.0.1", "127.0.0.2"}[i%2])
		write(t, client, 64)
		read(t, server, 64)
		write(t, server, 64)
		read(t, client, 64)
		if i%4 == 1 {
			must.Do(t, p.Detach())
		}
		client.Close()
		server.Close()
		if i%4 == 1 {
			must.Do(t, p.Attach())
		}
	}
	until(t, p, 0, each)
	until(t, p, 1, each)
}

// TestAttachAgain: a request during which the programs were detached is not counted; those after it
// are.
func TestAttachAgain(t *testing.T) {
	p := open(t, Options{Services: []Service{{Protocol: tcp}}})
	client, server := connect(t)
	write(t, client, 64)
	read(t, server, 64)
	must.Do(t, p.Detach())
	must.Do(t, p.Attach())
	write(t, server, 64)
	read(t, client, 64)
	if all, err := p.Read(1); err != nil || all[0].Requests != 0 {
		t.Errorf("%d requests, %v, want 0", all[0].Requests, err)
	}
	write(t, client, 64)
	read(t, server, 64)
	write(t, server, 64)
	until(t, p, 0, 1)
	if p.Attach() == nil {
		t.Error("attached twice")
	}
}

// TestNothingStays: Close removes the programs from the kernel.
func TestNothingStays(t *testing.T) {
	p := open(t, Options{Services: []Service{{Protocol: tcp}, {Protocol: udp}}})
	var ids []ebpf.ProgramID
	for _, prog := range p.coll.Programs {
		info, err := prog.Info()
		must.Do(t, err)
		id, _ := info.ID()
		ids = append(ids, id)
	}
	if len(ids) < 10 {
		t.Errorf("%d programs", len(ids))
	}
	must.Do(t, p.Close())
	vethtest.Until(t, "the programs are gone", func() bool {
		for _, id := range ids {
			if prog, err := ebpf.NewProgramFromID(id); err == nil {
				prog.Close()
				return false
			}
		}
		return true
	})
}

// TestRefusals: what cannot be followed is refused before anything is loaded.
func TestRefusals(t *testing.T) {
	if _, err := Open(Options{}); err == nil {
		t.Error("no services are accepted")
	}
	if _, err := Open(Options{Services: make([]Service, MaxServices+1)}); err == nil {
		t.Error("too many services are accepted")
	}
}

// TestParse: a sample that ends early is an error.
func TestParse(t *testing.T) {
	if _, err := parse(make([]byte, 39)); err == nil {
		t.Error("39 bytes are a sample")
	}
	whole := make([]byte, 40+32)
	whole[32] = 1 // n
	s, err := parse(whole)
	if err != nil || len(s.Past) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parse(whole[:60]); err == nil {
		t.Error("half an entry is read")
	}
}

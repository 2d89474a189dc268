// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/probe"
)

func addr(s string) netip.Addr      { return netip.MustParseAddr(s) }
func end(s string) netip.AddrPort   { return netip.MustParseAddrPort(s) }
func whole(s string) netip.AddrPort { return netip.AddrPortFrom(addr(s), 0) }

type pair struct{ local, remote string }

// ends are the addresses of this host (local) and of the other host (remote).
var ends = map[string]pair{
	"IPv4": {"10.9.0.1", "10.9.0.2"}, "IPv6": {"fd00:9::1", "fd00:9::2"},
}

// host is the other host: a network namespace with the other end of the pair.
type host struct {
	t  *testing.T
	ns int
}

func ip(t *testing.T, format string, args ...any) {
	t.Helper()
	f := strings.Fields(fmt.Sprintf(format, args...))
	if out, err := exec.Command("ip", f...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(f, " "), err, out)
	}
}

// between connects this host to the other host, and then runs f on this host.
func between(t *testing.T, f func(t *testing.T, other *host)) {
	vethtest.NeedRoot(t)
	vethtest.Run(t, 2, func(t *testing.T) {
		h := &host{t: t}
		vethtest.OnOwnThread(func() {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Error(err)
				return
			}
			var err error
			if h.ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				t.Error(err)
			}
		})
		if t.Failed() {
			return
		}
		defer unix.Close(h.ns)
		ip(t, "link set %s netns /proc/%d/fd/%d", vethtest.Peer, os.Getpid(), h.ns)
		for _, e := range ends {
			ip(t, "address add %s/%d dev %s%s", e.local, bits(e.local), vethtest.Dev, nodad(e.local))
			h.run(func() {
				ip(t, "address add %s/%d dev %s%s", e.remote, bits(e.remote), vethtest.Peer,
					nodad(e.remote))
			})
		}
		h.run(func() {
			ip(t, "link set lo up")
			ip(t, "link set %s up", vethtest.Peer)
		})
		// The kernel drops packets until it has noticed the carrier.
		for name, e := range ends {
			vethtest.Until(t, name+" connected", func() bool {
				c, err := net.Dial("tcp", net.JoinHostPort(e.remote, "9"))
				if err == nil {
					c.Close()
				}
				return errors.Is(err, unix.ECONNREFUSED)
			})
		}
		f(t, h)
	})
}

// eachFamily runs f as between does, once with IPv4 and once with IPv6.
func eachFamily(t *testing.T, f func(t *testing.T, other *host, e pair)) {
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			between(t, func(t *testing.T, other *host) { f(t, other, e) })
		})
	}
}

func bits(a string) int {
	if addr(a).Is4() {
		return 24
	}
	return 64
}

// nodad returns an option that makes an IPv6 address usable at once.
func nodad(a string) string {
	if addr(a).Is4() {
		return ""
	}
	return " nodad"
}

// run runs f on the other host.
func (h *host) run(f func()) {
	h.t.Helper()
	vethtest.OnOwnThread(func() {
		if err := unix.Setns(h.ns, unix.CLONE_NEWNET); err != nil {
			h.t.Error(err)
			return
		}
		f()
	})
}

// listen listens for TCP on the calling thread's host. No other socket may have the port unless
// reuse (SO_REUSEADDR) is set.
func listen(t *testing.T, at netip.AddrPort, reuse int) *net.TCPListener {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, reuse)
		}), err)
	}}
	config.SetMultipathTCP(false)
	l, err := config.Listen(context.Background(), "tcp", at.String())
	must.Do(t, err)
	t.Cleanup(func() { l.Close() })
	tcp := l.(*net.TCPListener)
	must.Do(t, tcp.SetDeadline(time.Now().Add(10*time.Second)))
	return tcp
}

func send(t *testing.T, as ...probe.Attempt) []probe.Result {
	t.Helper()
	got, err := probe.Send(context.Background(), as, nil)
	if errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	must.Do(t, err)
	return got
}

// TestClosed sends from a port on which a server of this host listens, and from free ports. Each
// packet goes to a different remote port, and the other host refuses it.
func TestClosed(t *testing.T) {
	eachFamily(t, func(t *testing.T, other *host, e pair) {
		server := netip.AddrPortFrom(addr(e.local), 80)
		listen(t, server, 0)
		one := probe.Attempt{Protocol: "tcp", Local: server, Remote: whole(e.remote)}
		another := probe.Attempt{Protocol: "tcp", Local: whole(e.local), Remote: whole(e.remote)}
		as := slices.Concat(slices.Repeat([]probe.Attempt{one}, 8), slices.Repeat([]probe.Attempt{another}, 8))
		remotes, locals := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
		for i, r := range send(t, as...) {
			if r.Answer != probe.Refused || r.Err != nil || !r.Sent() {
				t.Errorf("attempt %d: %+v", i, r)
			}
			remotes[r.Remote], locals[r.Local] = true, true
			if r.Remote.Port() < 61000 || i < 8 && r.Local != server {
				t.Errorf("attempt %d: from %s to %s", i, r.Local, r.Remote)
			}
		}
		if len(remotes) != 16 || len(locals) < 8 {
			t.Errorf("%d ports there, %d here; want 16, and more than one", len(remotes), len(locals))
		}
	})
}

// TestOpen: the remote application notices an attempt only if Connect is set. It then gets a
// connection, and a reset.
func TestOpen(t *testing.T) {
	eachFamily(t, func(t *testing.T, other *host, e pair) {
		// The other host's kernel keeps the incomplete connection of the first attempt for a
		// while, so the second attempt goes to another port.
		var unasked, there *net.TCPListener
		half, at := netip.AddrPortFrom(addr(e.remote), 7000), netip.AddrPortFrom(addr(e.remote), 7001)
		other.run(func() { unasked, there = listen(t, half, 0), listen(t, at, 0) })
		server := netip.AddrPortFrom(addr(e.local), 80)
		listen(t, server, 0)
		for _, local := range []netip.AddrPort{server, whole(e.local)} {
			if r := send(t, probe.Attempt{Protocol: "tcp", Local: local,
				Remote: half})[0]; r.Answer != probe.Accepted || r.Err != nil {
				t.Errorf("not to connect: %+v", r)
			}
			r := send(t, probe.Attempt{Protocol: "tcp", Local: local, Remote: at, Connect: true})[0]
			if r.Answer != probe.Accepted || r.Err != nil {
				t.Errorf("to connect: %+v", r)
			}
			c, err := there.AcceptTCP()
			must.Do(t, err)
			if got := c.RemoteAddr().(*net.TCPAddr).AddrPort(); got != r.Local {
				t.Errorf("connected from %s, want %s", got, r.Local)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("read: %v, want a reset", err)
			}
			c.Close()
		}
		// The application on port 7000 got no connection from an attempt: the first one that it
		// gets is this one.
		var c net.Conn
		var err error
		other.run(func() { c, err = net.Dial("tcp", half.String()) })
		must.Do(t, err)
		defer c.Close()
		got, err := unasked.Accept()
		must.Do(t, err)
		defer got.Close()
		if got.RemoteAddr().String() != c.LocalAddr().String() {
			t.Errorf("the application got a connection from %s", got.RemoteAddr())
		}
	})
}

// TestLive: no attempt uses the addresses and ports of an existing connection, and that
// connection continues to work.
func TestLive(t *testing.T) {
	between(t, func(t *testing.T, other *host) {
		at := end("10.9.0.1:80")
		l := listen(t, at, 0)
		var client net.Conn
		var err error
		other.run(func() {
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(end("10.9.0.2:61000"))}
			client, err = d.Dial("tcp", at.String())
		})
		must.Do(t, err)
		defer client.Close()
		server, err := l.Accept()
		must.Do(t, err)
		defer server.Close()
		exchange := func() {
			t.Helper()
			for _, d := range [][2]net.Conn{{client, server}, {server, client}} {
				b := make([]byte, 5)
				if _, err := d[0].Write([]byte("alive")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(d[1], b); err != nil || string(b) != "alive" {
					t.Fatalf("%q, %v", b, err)
				}
			}
		}
		exchange()
		before := segmentsSent(t)
		r := send(t, probe.Attempt{Protocol: "tcp", Local: at, Remote: end("10.9.0.2:61000")})[0]
		if !errors.Is(r.Err, probe.ErrInUse) || r.Sent() {
			t.Errorf("got %+v, want %v", r, probe.ErrInUse)
		}
		if n := segmentsSent(t) - before; n != 0 {
			t.Errorf("%d segments were sent", n)
		}
		exchange()
		as := slices.Repeat([]probe.Attempt{{Protocol: "tcp", Local: at, Remote: whole("10.9.0.2")}}, 100)
		for i, r := range send(t, as...) {
			if r.Answer != probe.Refused || r.Remote.Port() == 61000 {
				t.Errorf("attempt %d: %+v", i, r)
			}
		}
		exchange()
	})
}

// segmentsSent returns the number of TCP segments that this host has sent, without resets and
// retransmissions.
func segmentsSent(t *testing.T) int { return vethtest.TCP(t, "OutSegs") }

// TestRestart: a server can start on the local port while Send waits for an answer.
func TestRestart(t *testing.T) {
	between(t, func(t *testing.T, other *host) {
		at := end("10.9.0.1:80")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		// No host has the remote address, so no answer comes. When the third attempt starts, the
		// first one still waits.
		as := slices.Repeat([]probe.Attempt{{Protocol: "tcp", Local: at, Remote: whole("10.9.0.77")}}, 3)
		_, err := probe.Send(ctx, as, func(i int, _, _ netip.AddrPort) bool {
			if i == 2 {
				listen(t, at, 1)
				cancel()
			}
			return true
		})
		must.Do(t, err)
	})
}

// TestNoAnswer: without a host at the address, Send ends soon and sends no SYN twice.
func TestNoAnswer(t *testing.T) {
	between(t, func(t *testing.T, other *host) {
		ip(t, "neighbour add 10.9.0.77 lladdr 02:00:00:00:00:77 dev %s", vethtest.Dev)
		before := vethtest.TCP(t, "RetransSegs")
		a := probe.Attempt{Protocol: "tcp", Local: end("10.9.0.1:80"), Remote: whole("10.9.0.77")}
		as := slices.Repeat([]probe.Attempt{a}, 4)
		for i, r := range send(t, as...) {
			if r.Answer != probe.None || r.Err != nil || !r.Sent() {
				t.Errorf("attempt %d: %+v", i, r)
			}
		}
		if n := vethtest.TCP(t, "RetransSegs") - before; n != 0 {
			t.Errorf("%d segments were sent again", n)
		}
	})
}

// TestUnreachable: Send reports a router's ICMP message as the answer Unreachable.
func TestUnreachable(t *testing.T) {
	between(t, func(t *testing.T, other *host) {
		ip(t, "route add 10.8.0.0/24 via 10.9.0.2")
		other.run(func() {
			if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
				t.Error(err)
			}
			ip(t, "route add unreachable 10.8.0.0/24")
		})
		r := send(t, probe.Attempt{Protocol: "tcp", Local: end("10.9.0.1:80"), Remote: whole("10.8.0.1")})[0]
		if r.Answer != probe.Unreachable || !errors.Is(r.Err, unix.EHOSTUNREACH) || !r.Sent() {
			t.Errorf("got %+v", r)
		}
	})
}

// TestUDP: a datagram from the port of a server of this host arrives complete, and the server
// still gets its datagrams. From a free port, Send sees the answer.
func TestUDP(t *testing.T) {
	eachFamily(t, func(t *testing.T, other *host, e pair) {
		local, remote := netip.AddrPortFrom(addr(e.local), 53), netip.AddrPortFrom(addr(e.remote), 7000)
		server, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
		must.Do(t, err)
		defer server.Close()
		var peer *net.UDPConn
		other.run(func() { peer, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(remote)) })
		must.Do(t, err)
		defer peer.Close()
		for _, c := range []*net.UDPConn{server, peer} {
			must.Do(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		}
		b := make([]byte, 10)
		r := send(t, probe.Attempt{Protocol: "udp", Local: local, Remote: remote})[0]
		if r.Answer != probe.Unawaited || r.Err != nil || !r.Sent() {
			t.Errorf("from the server's port: %+v", r)
		}
		if n, from, err := peer.ReadFromUDPAddrPort(b); n != 0 || from != local || err != nil {
			t.Errorf("arrived %d bytes from %s (%v), want none from %s", n, from, err, local)
		}
		if _, err := peer.WriteToUDPAddrPort([]byte("query"), local); err != nil {
			t.Fatal(err)
		}
		if n, _, err := server.ReadFromUDPAddrPort(b); string(b[:n]) != "query" {
			t.Errorf("the server got %q (%v)", b[:n], err)
		}
		go func() {
			if _, from, err := peer.ReadFromUDPAddrPort(b); err == nil {
				_, _ = peer.WriteToUDPAddrPort(nil, from)
			}
		}()
		free := probe.Attempt{Protocol: "udp", Local: whole(e.local), Remote: remote}
		if r := send(t, free)[0]; r.Answer != probe.Accepted || r.Err != nil {
			t.Errorf("answered: %+v", r)
		}
		free.Remote = whole(e.remote)
		if r := send(t, free)[0]; r.Answer != probe.Refused || r.Err != nil {
			t.Errorf("to a closed port: %+v", r)
		}
	})
}

// TestUnsent: if Send cannot send an attempt, the result has the reason, and no packet leaves.
func TestUnsent(t *testing.T) {
	between(t, func(t *testing.T, other *host) {
		before := segmentsSent(t)
		for name, c := range map[string]struct {
			a    probe.Attempt
			want error
		}{
			"another host's address": {probe.Attempt{Protocol: "tcp", Local: end("10.9.0.9:80"),
				Remote: whole("10.9.0.2")}, unix.EADDRNOTAVAIL},
			"no route": {probe.Attempt{Protocol: "tcp", Local: end("10.9.0.1:80"),
				Remote: whole("10.1.0.2")}, unix.ENETUNREACH},
			"UDP, no route": {probe.Attempt{Protocol: "udp", Local: end("10.9.0.1:80"),
				Remote: whole("10.1.0.2")}, unix.ENETUNREACH},
			"two families": {probe.Attempt{Protocol: "tcp", Local: end("10.9.0.1:80"),
				Remote: whole("fd00:9::2")}, unix.EAFNOSUPPORT},
		} {
			if r := send(t, c.a)[0]; !errors.Is(r.Err, c.want) || r.Sent() {
				t.Errorf("%s: %+v, want %v", name, r, c.want)
			}
		}
		a := probe.Attempt{Protocol: "tcp", Local: whole("10.9.0.1"), Remote: whole("10.9.0.2")}
		asked := 0
		got, err := probe.Send(context.Background(), []probe.Attempt{a},
			func(i int, local, remote netip.AddrPort) bool {
				asked++
				return false
			})
		if err != nil || !errors.Is(got[0].Err, probe.ErrUnfit) || got[0].Sent() || asked < 2 {
			t.Errorf("no port fits, asked %d times: %+v, %v", asked, got, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if got, err := probe.Send(ctx, []probe.Attempt{a}, nil); err != nil ||
			!errors.Is(got[0].Err, context.Canceled) || got[0].Sent() {
			t.Errorf("stopped: %+v, %v", got, err)
		}
		if n := segmentsSent(t) - before; n != 0 {
			t.Errorf("%d segments were sent", n)
		}
	})
}

// TestPrivilege: without the privilege, Send sends nothing, not even attempts that need no
// privilege.
func TestPrivilege(t *testing.T) {
	between(t, func(t *testing.T, other *host) {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		must.Do(t, unix.Capset(&head, &none[0]))
		before := segmentsSent(t)
		for _, protocol := range []string{"tcp", "udp"} {
			_, err := probe.Send(context.Background(), []probe.Attempt{
				{Protocol: "tcp", Local: whole("10.9.0.1"), Remote: whole("10.9.0.2")},
				{Protocol: protocol, Local: end("10.9.0.1:8080"), Remote: whole("10.9.0.2")},
			}, nil)
			if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_") {
				t.Errorf("%s: %v, want EPERM with the privilege", protocol, err)
			}
		}
		if n := segmentsSent(t) - before; n != 0 {
			t.Errorf("%d segments were sent", n)
		}
	})
}

// TestFind: Find returns the device for an address, and refuses addresses that are not another
// host's.
func TestFind(t *testing.T) {
	between(t, func(t *testing.T, other *host) {
		ip(t, "address add 192.0.2.5/32 dev %s", vethtest.Dev)
		for name, e := range ends {
			p, err := probe.Find(addr(e.remote))
			must.Do(t, err)
			want := []netip.Addr{addr(e.local)}
			if name == "IPv4" {
				want = append(want, addr("192.0.2.5"))
			}
			if p.Source != addr(e.local) || fmt.Sprint(p.Sources) != fmt.Sprint(want) || p.Device != vethtest.Dev {
				t.Errorf("%s: %+v, want from %v", name, p, want)
			}
			if vlan, ok := p.Through(vethtest.Dev); vlan != 0 || !ok {
				t.Errorf("%s: VLAN %d, %v", name, vlan, ok)
			}
			if _, ok := p.Through("lo"); ok {
				t.Errorf("%s: reached by lo", name)
			}
		}
		for s, want := range map[string]error{"10.9.0.1": probe.ErrAddress, "10.9.0.255": probe.ErrAddress,
			"fd00:9::1": probe.ErrAddress, "10.1.0.1": unix.ENETUNREACH} {
			if _, err := probe.Find(addr(s)); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", s, err, want)
			}
		}
	})
}

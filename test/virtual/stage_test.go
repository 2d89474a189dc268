// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/test/simcard/bed"
)

// A stage is a device with lanes and a host behind it.
type stage struct {
	dev          string
	local, other netip.Addr
	// here and there run a function on the device's host and on the other one.
	here, there func(func())
}

// stageFor makes the mechanism's device.
func stageFor(t *testing.T, m mechanism) stage {
	t.Helper()
	if m.card == nil {
		const linkRate = 100e6
		l, err := lab.Up(t.Context(), lab.Config{Name: "v", LinkRate: linkRate, LinkBurst: lab.LeastBurst(0)})
		must.Do(t, err)
		on := func(host string) func(func()) {
			return func(f func()) { onHost(t, l, host, f) }
		}
		return stage{lab.Port, l.Config.IPv4(lab.SUT), l.Config.IPv4(lab.Client), on(lab.SUT), on(lab.Client)}
	}
	run(t, `
ip netns add wire
ip link set wire0 netns wire
ip addr add 10.9.0.1/24 dev sim0
ip link set sim0 up
ip -n wire addr add 10.9.0.2/24 dev wire0
ip -n wire link set wire0 up
ip neigh replace 10.9.0.2 lladdr 02:6e:6c:00:00:02 dev sim0
ip -n wire neigh replace 10.9.0.1 lladdr 02:6e:6c:00:00:01 dev wire0`[1:])
	return stage{bed.Dev, bed.CardAddr, bed.WireAddr, func(f func()) { f() },
		func(f func()) { bed.Within(t, "wire", f) }}
}

// onHost runs f on a host of a lab. f may end the test: the lab's thread then ends, and Do does not
// return.
func onHost(t *testing.T, l *lab.Lab, host string, f func()) {
	t.Helper()
	done := make(chan error, 2)
	go func() {
		done <- l.Do(host, func() error {
			defer func() { done <- nil }()
			f()
			return nil
		})
	}()
	must.Do(t, <-done)
	if t.Failed() {
		t.FailNow()
	}
}

// A pair is a flow: a socket on each host, connected with each other.
type pair struct{ here, there int }

// pairs makes flows. Local ends have one port, and are made in a group if it is not nil. Each local
// socket gets a datagram first, because with XPS by receive queues it sends on the queues on which it
// received.
func (s stage) pairs(t *testing.T, g group, port uint16, n int) []pair {
	t.Helper()
	if g == nil {
		g = func(f func()) { f() }
	}
	pairs := make([]pair, n)
	for i := range pairs {
		p, other := &pairs[i], port+1000+uint16(i)
		g(func() {
			s.here(func() { p.here = udp(t, netip.AddrPortFrom(s.local, port), netip.AddrPortFrom(s.other, other)) })
		})
		s.there(func() { p.there = udp(t, netip.AddrPortFrom(s.other, other), netip.AddrPortFrom(s.local, port)) })
		must.Do(t, unix.SetsockoptInt(p.there, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<28))
		must.Do(t, unix.SetsockoptInt(p.there, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
		if _, err := unix.Write(p.there, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		sleep(now() + 20e6)
		if _, _, err := unix.Recvfrom(p.here, make([]byte, 8), unix.MSG_DONTWAIT); err != nil {
			t.Fatalf("port %d: no datagram: %v", port, err)
		}
	}
	return pairs
}

func udp(t *testing.T, local, remote netip.AddrPort) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()}))
	must.Do(t, unix.Connect(fd, &unix.SockaddrInet4{Port: int(remote.Port()), Addr: remote.Addr().As4()}))
	return fd
}

// A group runs a function in a lane's control group.
type group func(func())

// groups makes the control groups of the lanes, if lanes have any.
func (m mechanism) groups(t *testing.T) map[string]group {
	t.Helper()
	groups := map[string]group{}
	if m.cgroup == "" {
		return groups
	}
	if m.cgroup != cgroup2 {
		must.Do(t, os.Mkdir(m.cgroup, 0o755))
		must.Do(t, unix.Mount("cgroup", m.cgroup, "cgroup", 0, filepath.Base(m.cgroup)))
	}
	for _, l := range m.lanes() {
		dir := filepath.Join(m.cgroup, l.name)
		must.Do(t, os.Mkdir(dir, 0o755))
		if m.cgroup == cgroup2 {
			groups[l.name] = func(f func()) {
				enter(t, dir, "cgroup.procs")
				defer enter(t, m.cgroup, "cgroup.procs")
				f()
			}
		} else {
			groups[l.name] = thread(t, dir)
		}
	}
	return groups
}

// thread starts a thread in a group of cgroup v1. A thread that enters a group takes all sockets of
// its process along. So all threads enter before there are sockets, and none leaves.
func thread(t *testing.T, dir string) group {
	calls, done := make(chan func()), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		enter(t, dir, "tasks")
		done <- struct{}{}
		for f := range calls {
			f()
			done <- struct{}{}
		}
	}()
	<-done
	return func(f func()) {
		calls <- f
		<-done
	}
}

// enter moves the thread or its process into a control group.
func enter(t *testing.T, dir, file string) {
	must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte("0"), 0))
}

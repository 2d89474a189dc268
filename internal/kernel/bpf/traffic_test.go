// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// A far runs functions on a thread in another network namespace. That namespace has the other
// end of the veth pair.
type far struct {
	testing.TB
	work chan func()
}

// do runs g on the far thread. If g ends the test (FailNow), do ends it on this thread too.
func (f far) do(g func()) {
	f.Helper()
	done, through := make(chan struct{}), false
	f.work <- func() { defer close(done); g(); through = true }
	<-done
	if !through {
		f.FailNow()
	}
}

// withFar moves v1 to another namespace and gives both ends addresses.
func withFar(t *testing.T, queues int, f func(t *testing.T, c *bpf.Client, peer far)) {
	t.Helper()
	withXDP(t, queues, func(t *testing.T, c *bpf.Client) {
		toFar(t, func(peer far) { f(t, c, peer) })
	})
}

// toFar does what withFar does, but on an existing veth.
func toFar(t testing.TB, f func(peer far)) {
	t.Helper()
	peer, tid := newFar(t)
	defer close(peer.work)
	vethtest.Command(t, fmt.Sprintf("ip link set v1 netns %d", tid))
	vethtest.Command(t, "ip addr add 10.9.0.1/24 dev v0")
	vethtest.Command(t, "ip addr add fd00:9::1/64 dev v0 nodad")
	peer.do(func() {
		for _, line := range []string{"ip link set lo up", "ip link set v1 up", "ip addr add 10.9.0.2/24 dev v1",
			"ip addr add fd00:9::2/64 dev v1 nodad"} {
			vethtest.Command(t, line)
		}
	})
	f(peer)
}

// newFar makes a network namespace. It ends when the caller closes the far's channel. tid is the ID of
// its thread.
func newFar(t testing.TB) (peer far, tid int) {
	t.Helper()
	peer = far{t, make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		tid = unix.Gettid()
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for g := range peer.work {
			g()
		}
	}()
	must.Do(t, <-ready)
	return peer, tid
}

// A conn is a TCP connection: from is the peer's socket, to is the application's.
type conn struct{ from, to int }

func (c conn) close() {
	unix.Close(c.from)
	unix.Close(c.to)
}

func socket(t testing.TB, sa unix.Sockaddr, typ int) int {
	t.Helper()
	family := unix.AF_INET
	if _, ok := sa.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	// If a packet does not arrive, the test gets an error and does not hang.
	for _, opt := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		must.Do(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &unix.Timeval{Sec: 10}))
	}
	return fd
}

func listen(t *testing.T, sa unix.Sockaddr) int {
	t.Helper()
	fd := socket(t, sa, unix.SOCK_STREAM)
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		err = unix.Listen(fd, 64)
	}
	must.Do(t, err)
	return fd
}

// connect makes a connection from the peer to a listener of this namespace.
func connect(t *testing.T, peer far, listener int, sa unix.Sockaddr) conn {
	t.Helper()
	var c conn
	var err error
	peer.do(func() {
		c.from = socket(t, sa, unix.SOCK_STREAM)
		err = unix.Connect(c.from, sa)
	})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	if c.to, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC); err != nil {
		t.Fatalf("accept: %v", err)
	}
	return c
}

// exchange sends data in both directions, in parts that fit the socket buffers.
func (c conn) exchange(t *testing.T, parts int) {
	t.Helper()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 2048)
	got := make([]byte, len(sent))
	for range parts {
		for _, way := range [][2]int{{c.from, c.to}, {c.to, c.from}} {
			if n, err := unix.Write(way[0], sent); n != len(sent) || err != nil {
				t.Fatalf("wrote %d bytes, %v", n, err)
			}
			for n := 0; n < len(got); {
				m, err := unix.Read(way[1], got[n:])
				if m <= 0 || err != nil {
					t.Fatalf("read %d bytes after %d, %v", m, n, err)
				}
				n += m
			}
			if !bytes.Equal(got, sent) {
				t.Fatal("other data than was sent")
			}
		}
	}
}

// incomingCPU returns the CPU on which the kernel handled the connection's packets.
func (c conn) incomingCPU(t *testing.T) int {
	t.Helper()
	cpu, err := unix.GetsockoptInt(c.to, unix.SOL_SOCKET, unix.SO_INCOMING_CPU)
	must.Do(t, err)
	return cpu
}

// pin keeps this thread on a CPU, and so the softirqs of the packets that it sends.
func pin(t *testing.T, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	must.Do(t, unix.SchedSetaffinity(0, &set))
}

// counted returns how many packets the program has counted for each lane.
func counted(t *testing.T, c *bpf.Client) (n [64]uint64) {
	t.Helper()
	all, err := c.XDPCounters("v0")
	must.Do(t, err)
	for _, l := range all {
		n[l.Lane] += l.Packets
	}
	return n
}

const port = 11211

var targets = map[string]struct {
	sa    unix.Sockaddr
	match device.Match
}{
	"IPv4": {&unix.SockaddrInet4{Addr: [4]byte{10, 9, 0, 1}, Port: port},
		device.Match{Family: 4, Protocol: "tcp", Local: "10.9.0.1/32", LocalPort: port}},
	"IPv6": {&unix.SockaddrInet6{Addr: [16]byte{0: 0xfd, 3: 9, 15: 1}, Port: port},
		device.Match{Family: 6, Protocol: "tcp", LocalPort: port}},
}

// steer attaches the program and makes lane 1 lead to a CPU.
func steer(t *testing.T, c *bpf.Client, x device.XDP, cpu int, matches ...device.Match) {
	t.Helper()
	vethtest.Write(t, c, nil, x)
	vethtest.Write(t, c, nil, device.CPUQueue{Dev: "v0", CPU: cpu, Size: 512})
	vethtest.Write(t, c, nil, device.CPULane{Dev: "v0", Lane: 1, CPUs: []int{cpu}})
	for _, m := range matches {
		vethtest.Write(t, c, nil, xdpEntry(1, m))
	}
}

func TestTrafficGeneric(t *testing.T) {
	for name, tt := range targets {
		t.Run(name, func(t *testing.T) {
			withFar(t, 2, func(t *testing.T, c *bpf.Client, peer far) {
				reaches(t, c, peer, generic, tt.sa, tt.match)
			})
		})
	}
}

func TestTrafficNative(t *testing.T) {
	for name, tt := range targets {
		t.Run(name, func(t *testing.T) {
			withFar(t, 2, func(t *testing.T, c *bpf.Client, peer far) {
				peer.do(func() { vethtest.Command(t, "ethtool -K v1 tx off") })
				reaches(t, c, peer, native, tt.sa, tt.match)
			})
		})
	}
}

// reaches checks that a connection's packets arrive on the lane's CPU and count as the lane's,
// and that they do neither after the lane's entry is removed.
func reaches(t *testing.T, c *bpf.Client, peer far, x device.XDP, sa unix.Sockaddr, match device.Match) {
	last := runtime.NumCPU() - 1
	pin(t, 0)
	peer.do(func() { pin(t, 0) })
	fd := listen(t, sa)
	defer unix.Close(fd)
	steer(t, c, x, last, match)
	k := connect(t, peer, fd, sa)
	defer k.close()
	k.exchange(t, 30)
	if got := k.incomingCPU(t); got != last {
		t.Errorf("packets arrived by CPU %d, want %d", got, last)
	}
	before := counted(t, c)
	if before[1] == 0 {
		t.Errorf("counted %v", before)
	}
	// Without its entry, the lane gets no more packets, and the connection stays up.
	vethtest.Write(t, c, xdpEntry(1, match), nil)
	before = counted(t, c)
	k.exchange(t, 3)
	after := counted(t, c)
	if after[1] != before[1] || after[0] <= before[0] {
		t.Errorf("counted %v, then without the entry %v", before[:2], after[:2])
	}
	// Wait, because packets that a timer sends still arrive on the CPU that set the timer.
	vethtest.Until(t, "packets of no lane arrive by the sender's CPU", func() bool {
		k.exchange(t, 1)
		return k.incomingCPU(t) == 0
	})
	// Without a queue, the lane's packets pass.
	vethtest.Write(t, c, nil, xdpEntry(1, match))
	vethtest.Write(t, c, device.CPUQueue{Dev: "v0", CPU: last, Size: 512}, nil)
	k.exchange(t, 3)
	if n := counted(t, c); n[1] <= after[1] {
		t.Errorf("lane 1 counted %d, then %d", after[1], n[1])
	}
}

// TestNativeChecksums: a frame that native XDP redirects needs a complete checksum in its data.
// veth does not complete it, so the kernel drops such frames until v1's tx offload is off.
func TestNativeChecksums(t *testing.T) {
	tt := targets["IPv4"]
	withFar(t, 2, func(t *testing.T, c *bpf.Client, peer far) {
		fd := listen(t, tt.sa)
		defer unix.Close(fd)
		steer(t, c, native, 0, tt.match)
		var from int
		peer.do(func() {
			from = socket(t, tt.sa, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
			if err := unix.Connect(from, tt.sa); !errors.Is(err, unix.EINPROGRESS) {
				t.Errorf("connect: %v", err)
			}
		})
		defer unix.Close(from)
		vethtest.Until(t, "a bad checksum is counted", func() bool { return vethtest.TCP(t, "InCsumErrors") > 0 })
		peer.do(func() { vethtest.Command(t, "ethtool -K v1 tx off") })
		k := connect(t, peer, fd, tt.sa)
		defer k.close()
		k.exchange(t, 3)
	})
}

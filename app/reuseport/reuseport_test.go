// SPDX-License-Identifier: Apache-2.0

package reuseport_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app/reuseport"
	"github.com/niclane/niclane/app/sockiter"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: programs are attached to sockets")
	}
}

// A group is some listeners that share one port on the loopback device.
type group struct {
	*testing.T
	listeners []*net.TCPListener
	port      int
}

func listen(t *testing.T, n int) *group {
	t.Helper()
	needRoot(t)
	lo, err := net.InterfaceByName("lo")
	must.Do(t, err)
	if lo.Flags&net.FlagUp == 0 {
		vethtest.SetUp(t, "lo", true)
	}
	g := &group{T: t}
	for range n {
		g.add()
	}
	return g
}

func (g *group) add() *net.TCPListener {
	g.Helper()
	c := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET,
				unix.SO_REUSEPORT, 1)
		}), err)
	}}
	c.SetMultipathTCP(false) // MPTCP sockets refuse such a program (net/mptcp/sockopt.c)
	l, err := c.Listen(context.Background(), "tcp4", fmt.Sprintf("127.0.0.1:%d", g.port))
	must.Do(g, err)
	g.Cleanup(func() { l.Close() })
	g.port = l.Addr().(*net.TCPAddr).Port
	g.listeners = append(g.listeners, l.(*net.TCPListener))
	return l.(*net.TCPListener)
}

// fd calls f with the descriptor of a listener.
func fd(t *testing.T, l *net.TCPListener, f func(fd int) error) {
	t.Helper()
	c, err := l.SyscallConn()
	must.Do(t, err)
	if cerr := c.Control(func(s uintptr) { err = f(int(s)) }); cerr != nil || err != nil {
		t.Fatal(errors.Join(cerr, err))
	}
}

// connect makes n connections from a thread on processor cpu and accepts all of them. It returns
// how many each listener got.
func (g *group) connect(n, cpu int) []int {
	g.Helper()
	done := make(chan []net.Conn)
	go func() {
		runtime.LockOSThread() // never unlocked, so the runtime ends the thread, whose affinity was changed
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			g.Error(err)
		}
		var cs []net.Conn
		for range n {
			c, err := connectHere(g.port)
			if err != nil {
				g.Error(err)
				break
			}
			cs = append(cs, c)
		}
		done <- cs
	}()
	cs := <-done
	counts := make([]int, len(g.listeners))
	for range cs {
		counts[g.accept()]++
	}
	for _, c := range cs {
		c.Close()
	}
	return counts
}

// connectHere connects in the calling thread. Loopback packets are then received on the processor
// of that thread.
func connectHere(port int) (net.Conn, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(s), "client")
	defer f.Close()
	if err := unix.Connect(s, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// accept accepts one connection and returns the index of its listener.
func (g *group) accept() int {
	g.Helper()
	var fds []unix.PollFd
	var index []int
	for i, l := range g.listeners {
		c, err := l.SyscallConn()
		must.Do(g, err)
		if c.Control(func(s uintptr) { fds = append(fds, unix.PollFd{Fd: int32(s), Events: unix.POLLIN}) }) == nil {
			index = append(index, i)
		}
	}
	if n, err := unix.Poll(fds, 5000); err != nil || n == 0 {
		g.Fatalf("a connection that was made waits for no listener: %d, %v", n, err)
	}
	for i, f := range fds {
		if f.Revents&unix.POLLIN != 0 {
			c, err := g.listeners[index[i]].Accept()
			must.Do(g, err)
			c.Close()
			return index[i]
		}
	}
	g.Fatal("none")
	return -1
}

func (g *group) picker() *reuseport.Picker {
	g.Helper()
	p, err := reuseport.New()
	must.Do(g, err)
	g.Cleanup(func() { p.Close() })
	return p
}

const loopback = 1 // interface index in every network namespace

// tables returns tables for loopback packets on processor cpu: they go to the given slots.
func tables(cpu int, slots ...uint32) reuseport.Tables {
	return reuseport.Tables{Devices: []uint32{loopback}, CPUs: map[uint32][]uint32{uint32(cpu): slots}}
}

func (g *group) set(p *reuseport.Picker, t reuseport.Tables) {
	g.Helper()
	must.Do(g, p.Set(t))
}

func (g *group) attach(p *reuseport.Picker) {
	g.Helper()
	for i, l := range g.listeners {
		fd(g.T, l, func(fd int) error { return p.Put(uint32(i), fd) })
	}
	fd(g.T, g.listeners[0], p.Attach)
}

func TestPick(t *testing.T) {
	g := listen(t, 4)
	p := g.picker()
	g.attach(p)
	cpu := firstCPU(t)
	if got := g.connect(40, cpu); slices.Contains(got, 40) {
		t.Errorf("without tables all went to one listener: %v", got)
	}
	g.set(p, tables(cpu, 2))
	if got := g.connect(40, cpu); got[2] != 40 {
		t.Errorf("all to listener 2: %v", got)
	}
	g.set(p, tables(cpu, 0, 3, 3, 3))
	if got := g.connect(200, cpu); got[1]+got[2] != 0 || got[0] < 20 || got[3] < 100 {
		t.Errorf("a quarter to listener 0, the rest to 3: %v", got)
	}
	g.set(p, tables(cpu+1000, 2))
	if got := g.connect(40, cpu); slices.Contains(got, 40) {
		t.Errorf("with a table of another processor all went to one listener: %v", got)
	}
	other := tables(cpu, 2)
	other.Devices = []uint32{loopback + 1000}
	g.set(p, other)
	if got := g.connect(40, cpu); slices.Contains(got, 40) {
		t.Errorf("with tables of another device all went to one listener: %v", got)
	}
	c, err := p.Counts()
	must.Do(t, err)
	if c.CPU != 240 || c.Hash != 120 || c.Queue != 0 {
		t.Errorf("counts %+v, want 240 by processor and 120 by the hash", c)
	}
}

// TestClose closes listeners, in several orders, while the tables refer to them.
func TestClose(t *testing.T) {
	for first := range 4 {
		g := listen(t, 4)
		p := g.picker()
		g.attach(p)
		cpu := firstCPU(t)
		g.set(p, tables(cpu, 3))
		for k := range 3 {
			i := (first + k) % 4
			g.listeners[i].Close()
			got := g.connect(20, cpu)
			sum := 0
			for _, n := range got {
				sum += n
			}
			if sum != 20 {
				t.Errorf("with listener %d closed: %v of 20 connections", i, got)
			}
			if open := (first+k)%4 < 3 && !closed(first, k, 3); open && got[3] != 20 {
				t.Errorf("with listener %d closed: %v, want all to 3 still", i, got)
			}
		}
		slots, err := p.Sockets()
		if err != nil || len(slots) != 1 {
			t.Errorf("%v, %v: want the one that is open", slots, err)
		}
	}
}

// closed reports whether TestClose has closed listener i when its step k is done.
func closed(first, k, i int) bool {
	for n := range k + 1 {
		if (first+n)%4 == i {
			return true
		}
	}
	return false
}

// TestMigrate closes a listener that has connections in its accept queue.
func TestMigrate(t *testing.T) {
	g := listen(t, 2)
	p := g.picker()
	g.attach(p)
	cpu := firstCPU(t)
	g.set(p, tables(cpu, 0))
	var cs []net.Conn
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 20 {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", g.port))
		must.Do(t, err)
		defer c.Close()
		cs = append(cs, c)
	}
	g.listeners[0].Close()
	for range cs {
		if i := g.accept(); i != 1 {
			t.Fatalf("accepted by listener %d", i)
		}
	}
}

// TestOpen opens a picker that is attached already, as another process would.
func TestOpen(t *testing.T) {
	g := listen(t, 2)
	p := g.picker()
	g.attach(p)
	p.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	socks, err := sockiter.List(sockiter.Filter{Ports: []uint16{uint16(g.port)}, Listeners: true})
	must.Do(t, err)
	if len(socks) != 2 || !socks[0].Picked || socks[0].Group == 0 || socks[0].Group != socks[1].Group {
		t.Fatalf("%+v", socks)
	}
	p, err = reuseport.Open(socks[0].Program)
	must.Do(t, err)
	defer p.Close()
	slots, err := p.Sockets()
	must.Do(t, err)
	for _, s := range socks {
		if _, ok := slots[s.Cookie]; !ok {
			t.Errorf("socket %d is not among %v", s.Cookie, slots)
		}
	}
	cpu := firstCPU(t)
	g.set(p, tables(cpu, 1))
	if got := g.connect(20, cpu); got[1] != 20 {
		t.Errorf("%v, want all to listener 1", got)
	}
	fd(t, g.listeners[1], reuseport.Detach)
	if got := g.connect(40, cpu); got[1] == 40 {
		t.Errorf("detached: %v", got)
	}
	fd(t, g.listeners[1], reuseport.Detach) // no program is attached now, which must be no error
}

// TestForeign: Open returns an error for another owner's program.
func TestForeign(t *testing.T) {
	g := listen(t, 2)
	theirs, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "theirs", Type: ebpf.SkReuseport, AttachType: ebpf.AttachSkReuseportSelect, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	must.Do(t, err)
	defer theirs.Close()
	fd(t, g.listeners[0], func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF, theirs.FD())
	})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	socks, err := sockiter.List(sockiter.Filter{Ports: []uint16{uint16(g.port)}, Listeners: true})
	if err != nil || len(socks) != 2 || !socks[1].Picked {
		t.Fatalf("%+v, %v", socks, err)
	}
	if _, err := reuseport.Open(socks[0].Program); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want that it is not niclane's", err)
	}
}

func firstCPU(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	must.Do(t, unix.SchedGetaffinity(0, &set))
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	t.Fatal("no processor")
	return 0
}

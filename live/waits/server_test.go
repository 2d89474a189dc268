// SPDX-License-Identifier: Apache-2.0

package waits_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/live/waits"
)

const (
	serverRole = "test-server" // answers requests; prints "ready", and its own times when its input ends
	burnRole   = "test-burn"   // keeps the processor busy
	port       = 11211
	request    = 64 // bytes
)

func TestMain(m *testing.M) {
	// Before Linux 5.11, the lab's maps are locked memory too.
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	vethtest.Main(m, vethtest.Isolate, map[string]func([]string) error{
		lab.HelperCommand: lab.ExecMain,
		serverRole:        serve,
		burnRole:          burn,
		loadRole:          generate,
	})
}

// serve is a server that measures its own time, from the return of a read to the start of the
// write.
func serve(args []string) error {
	f := flag.NewFlagSet(serverRole, flag.ContinueOnError)
	network := f.String("network", "tcp", "")
	delay := f.Duration("delay", 0, "before an answer")
	every := f.Int64("every", 1, "only each nth answer is delayed")
	answer := f.Int("answer", request, "bytes")
	cpu := f.Int("cpu", -1, "the only processor; -1: as started")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := undisturbed(*cpu); err != nil {
		return err
	}
	var mu sync.Mutex
	var times []int64
	var n atomic.Int64
	work := func(began time.Time) {
		if n.Add(1)%*every == 0 {
			time.Sleep(*delay)
		}
		d := time.Since(began)
		mu.Lock()
		times = append(times, int64(d))
		mu.Unlock()
	}
	addr := fmt.Sprintf(":%d", port)
	if *network == "udp" {
		c, err := net.ListenPacket("udp", addr)
		if err != nil {
			return err
		}
		go func() {
			b := make([]byte, *answer+request)
			for {
				_, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				work(time.Now())
				c.WriteTo(b[:*answer], from)
			}
		}()
	} else {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					b := make([]byte, *answer+request)
					for {
						if _, err := io.ReadFull(c, b[:request]); err != nil {
							return
						}
						work(time.Now())
						if _, err := c.Write(b[:*answer]); err != nil {
							return
						}
					}
				}()
			}
		}()
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	mu.Lock()
	defer mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(times)
}

// emulated reports whether this is a guest of test/matrix, whose processors QEMU emulates.
func emulated() bool { return os.Getenv("NICLANE_GUEST") != "" }

// undisturbed lets the threads of this process go before other programs of the machine, which shall not
// change the result of a test. cpu is their only processor, unless it is less than 0. In an emulated guest,
// there are no other programs, and the kernel's threads could not do their work.
func undisturbed(cpu int) error {
	return threads(func(id int) error {
		if cpu >= 0 {
			if err := sched.SetAffinity(id, []int{cpu}); err != nil {
				return err
			}
		}
		if emulated() {
			return nil
		}
		return unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10}, 0)
	})
}

// threads calls f for each thread of this process, with its ID.
func threads(f func(id int) error) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := f(id); err != nil {
			return err
		}
	}
	return nil
}

// burn has the processor for a time, before all other threads, then leaves it for the same time.
func burn(args []string) error {
	f := flag.NewFlagSet(burnRole, flag.ContinueOnError)
	cpu := f.Int("cpu", -1, "")
	busy := f.Duration("for", 0, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := errors.Join(os.WriteFile("/proc/thread-self/comm", []byte("burner"), 0),
		sched.SetAffinity(0, []int{*cpu}),
		unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}, 0)); err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		for began := time.Now(); time.Since(began) < *busy; {
		}
		pause := unix.NsecToTimespec(int64(*busy))
		unix.Nanosleep(&pause, nil) // in the thread itself: Go's timers have threads that wait for the processor
	}
}

// A bed is a lab with a server on its SUT.
type bed struct {
	*lab.Lab
	addr netip.Addr
	// filter is the socket filter of the client's sockets, or nil.
	filter *ebpf.Program
}

func newBed(t *testing.T, c lab.Config) *bed {
	vethtest.NeedRoot(t)
	c.Name = fmt.Sprintf("waits-%d", os.Getpid())
	l := labtest.Up(t, c)
	return &bed{Lab: l, addr: l.Config.IPv4(lab.SUT)}
}

// start starts a role on the SUT and waits until it is ready. stop ends its input and reads the rest
// of its output into out.
func (b *bed) start(t *testing.T, args ...string) (stop func(out any)) {
	t.Helper()
	self, err := os.Executable()
	must.Do(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	cmd, err := b.Command(ctx, lab.SUT, lab.Options{}, append([]string{self}, args...)...)
	must.Do(t, err)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("%v: %q, %v", args, line, err)
	}
	stopped := false
	stop = func(to any) {
		stopped = true
		must.Do(t, in.Close())
		if to != nil {
			must.Do(t, json.NewDecoder(r).Decode(to))
		}
		_ = cmd.Wait()
	}
	t.Cleanup(func() {
		defer cancel()
		if !stopped {
			in.Close()
			_ = cmd.Wait()
		}
	})
	return stop
}

// open measures the server.
func (b *bed) open(t *testing.T, protocol string) *waits.Collector {
	t.Helper()
	return b.with(t, protocol, waits.Options{FixedRate: true})
}

// with measures the server with options.
func (b *bed) with(t *testing.T, protocol string, o waits.Options) *waits.Collector {
	t.Helper()
	o.Device = lab.Port
	o.Targets = []waits.Target{{Name: "server", Protocol: protocol, Ports: []uint16{port}}}
	var c *waits.Collector
	must.Do(t, b.Do(lab.SUT, func() (err error) {
		c, err = waits.Open(t.Context(), o)
		return err
	}))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// load sends n requests over each of some connections, one at a time with a pause after each, and returns the times to the
// answers in rising order.
func (b *bed) load(t *testing.T, protocol string, connections, n, answer int, pause time.Duration) []int64 {
	t.Helper()
	var mu sync.Mutex
	var times []int64
	var wg sync.WaitGroup
	for range connections {
		var c net.Conn
		must.Do(t, b.Do(lab.Client, func() (err error) {
			c, err = net.Dial(protocol, netip.AddrPortFrom(b.addr, port).String())
			return err
		}))
		if b.filter != nil {
			raw, err := c.(*net.TCPConn).SyscallConn()
			must.Do(t, err)
			must.Do(t, raw.Control(func(fd uintptr) {
				must.Do(t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_BPF, b.filter.FD()))
			}))
		}
		wg.Go(func() {
			defer c.Close()
			buf := make([]byte, answer)
			for range n {
				began := time.Now()
				c.SetDeadline(began.Add(20 * time.Second))
				if _, err := c.Write(buf[:request]); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					t.Error(err)
					return
				}
				d := int64(time.Since(began))
				mu.Lock()
				times = append(times, d)
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	wg.Wait()
	slices.Sort(times)
	return times
}

func p99(sorted []int64) int64 { return sorted[min(len(sorted)*99/100, len(sorted)-1)] }

// seen waits until the collector has n requests, or a few less: where other programs come to and go
// from the same tracepoints, the kernel leaves one out now and then.
func seen(t *testing.T, c *waits.Collector, n int) waits.Service {
	t.Helper()
	var s waits.Snapshot
	t.Cleanup(func() {
		if t.Failed() {
			show(t, s)
		}
	})
	vethtest.Until(t, fmt.Sprintf("%d requests are counted", n), func() bool {
		var err error
		s, err = c.Snapshot()
		must.Do(t, err)
		return s.Services[0].Requests >= uint64(n-n/4)
	})
	return s.Services[0]
}

func show(t *testing.T, s waits.Snapshot) {
	x := s.Services[0]
	t.Logf("requests %d seen %d pipelined %d unpaired %d retransmits %d drops %d cpu %v %v lost %d rate %g cost %+v", x.Requests,
		x.Seen, x.Pipelined, x.Unpaired, x.Retransmits, x.Drops, x.CPU, x.Processes, s.Lost, s.SampleRate, s.Cost)
	for st := range waits.Stages {
		p := x.Waits[st].Percentiles()
		t.Logf("%-16s %6d mean %9.0f p50 %9d p99 %9d max %9d %v", st, p.Count, p.Mean, p.P50, p.P99, p.Max, x.Culprits[st])
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package delayserver is a server with known delays, with which latency measurements can be
// checked. It draws delays from a distribution whose percentiles are known exactly. Or it stops all
// answers for a while at set times.
//
// The server looks only for the end of a request, not at its content. It records how late each
// answer was. A check against the distribution needs this record, to know whether the server really
// had these delays.
package delayserver

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/sock"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/stats"
)

// Config is the configuration of a server. Durations are in ns.
type Config struct {
	// Address is the address on which it listens; port 0 takes any free port.
	Address netip.AddrPort
	// End is the text that ends every request. Answer is the answer to each request.
	End, Answer string
	// Delays are the times from a request's arrival to its answer; the zero value means no delay. Seed
	// starts the random numbers for them.
	Delays Distribution
	Seed   uint64
	// Every is the time from the start of one stall to the next, Length how long a stall lasts; 0: no
	// stalls.
	Every, Length int64
	// Spin is how long before the next answer is due the thread stops sleeping and polls.
	Spin int64
	// Alone says that the process has no other work. The server then blocks the runtime's
	// preemption signals, and the garbage collector must be off.
	Alone bool
	// Setup says on which processor and with which priority the thread runs.
	thread.Setup
}

// Result is the result of a run.
type Result struct {
	Requests int64
	// Late has the lateness of each answer: the time from when it was due until it was sent, ns.
	Late *stats.Histogram
}

// Memcached and HTTP set End and Answer for a protocol. In memcached's, every get is a miss; in
// HTTP, every GET returns one byte.
func Memcached(c Config) Config { c.End, c.Answer = "\n", "END\r\n"; return c }
func HTTP(c Config) Config {
	c.End, c.Answer = "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
	return c
}

// A Server is a running server.
type Server struct {
	addr netip.AddrPort
	wake int
	done chan error
	res  Result
}

// Addr returns the address on which it listens.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Stop ends the server and returns its result.
func (s *Server) Stop() (Result, error) {
	if _, err := unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return Result{}, err
	}
	err := <-s.done
	unix.Close(s.wake)
	return s.res, err
}

// answer is an answer that waits until it is due.
type answer struct {
	due int64
	to  *conn
}

type answers []answer

func (a answers) Len() int           { return len(a) }
func (a answers) Less(i, j int) bool { return a[i].due < a[j].due }
func (a answers) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *answers) Push(x any)        { *a = append(*a, x.(answer)) }
func (a *answers) Pop() any {
	x := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return x
}

type conn struct {
	fd   int // -1: closed
	last int64
	part []byte // the part of a request that has arrived, if it is incomplete
}

type serving struct {
	Config
	*Server
	clock    thread.Clock
	rng      *rand.Rand
	listener int
	epfd     int
	conns    map[int32]*conn
	due      answers
	in       []byte
	answer   []byte
}

// wait calls epoll_pwait2(2) with a timeout in ns.
func (r *serving) wait(events []unix.EpollEvent, ns int64) (int, unix.Errno) {
	ts := unix.NsecToTimespec(ns)
	if r.Alone {
		n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(r.epfd), uintptr(unsafe.Pointer(&events[0])),
			uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		return int(n), e
	}
	n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(r.epfd), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	return int(n), e
}

// call makes a read or write system call without the Go runtime's knowledge. The call does not
// block.
func (r *serving) call(what uintptr, fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(what, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), e
}

// Start starts a server on a thread of its own.
func Start(c Config) (*Server, error) {
	if c.End == "" || c.Answer == "" || c.Length < 0 || c.Length > 0 && c.Every <= c.Length {
		return nil, errors.New("delayserver: want an end, an answer, and a length below every")
	}
	l, addr, err := sock.Listen(c.Address)
	if err != nil {
		return nil, fmt.Errorf("delayserver: %w", err)
	}
	s := &Server{addr: addr, done: make(chan error, 1), res: Result{Late: stats.NewHistogram()}}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		unix.Close(l)
		return nil, fmt.Errorf("delayserver: eventfd: %w", err)
	}
	r := &serving{Config: c, Server: s, listener: l, epfd: -1, conns: map[int32]*conn{},
		rng: rand.New(rand.NewPCG(c.Seed, 1)), in: make([]byte, 64<<10), answer: []byte(c.Answer)}
	go func() {
		err := r.run()
		for _, c := range r.conns {
			unix.Close(c.fd)
		}
		unix.Close(l)
		unix.Close(r.epfd)
		s.done <- err
	}()
	return s, nil
}

func (r *serving) run() (err error) {
	if err := r.Setup.Lock(); err != nil { // never unlocked, so the thread ends with the goroutine
		return err
	}
	if r.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for _, fd := range []int{r.wake, r.listener} {
		if err := r.watch(fd); err != nil {
			return err
		}
	}
	if r.Alone {
		if err := thread.BlockPreemption(); err != nil {
			return err
		}
	}
	r.clock = thread.StartClock()
	var events [64]unix.EpollEvent
	for {
		now := r.clock.Now()
		for len(r.due) > 0 && r.due[0].due <= now {
			r.send(heap.Pop(&r.due).(answer), now)
			now = r.clock.Now()
		}
		sleep := int64(50e6)
		if len(r.due) > 0 {
			sleep = max(0, r.due[0].due-now-r.Spin)
		}
		n, errno := r.wait(events[:], sleep)
		if errno != 0 && errno != unix.EINTR {
			return fmt.Errorf("epoll_pwait2: %w", errno)
		}
		for _, e := range events[:max(n, 0)] {
			switch int(e.Fd) {
			case r.wake:
				return nil
			case r.listener:
				if err := r.accept(); err != nil {
					return err
				}
			default:
				r.receive(r.conns[e.Fd])
			}
		}
	}
}

func (r *serving) watch(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	return unix.EpollCtl(r.epfd, unix.EPOLL_CTL_ADD, fd, &ev)
}

func (r *serving) accept() error {
	for {
		fd, _, err := unix.Accept4(r.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return nil // no connection waits, or it was closed again
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fmt.Errorf("set TCP_NODELAY: %w", err)
		}
		r.conns[int32(fd)] = &conn{fd: fd}
		if err := r.watch(fd); err != nil {
			return err
		}
	}
}

// receive reads from connection c and schedules an answer for each complete request.
func (r *serving) receive(c *conn) {
	n, errno := r.call(unix.SYS_READ, c.fd, r.in)
	if errno == unix.EAGAIN || errno == unix.EINTR {
		return
	}
	if errno != 0 || n == 0 {
		r.hangUp(c)
		return
	}
	now := r.clock.Now()
	c.part = append(c.part, r.in[:n]...)
	for {
		_, rest, found := bytes.Cut(c.part, []byte(r.End))
		if !found {
			return
		}
		c.part = append(c.part[:0], rest...)
		r.res.Requests++
		// An answer must not come before the answer to an earlier request.
		c.last = max(c.last, r.awake(now+r.Delays.draw(r.rng)))
		heap.Push(&r.due, answer{c.last, c})
	}
}

// awake returns when an answer that is due at t is sent: at t or, during a stall, at the stall's
// end.
func (r *serving) awake(t int64) int64 {
	if r.Length > 0 && t >= r.Every && t%r.Every < r.Length {
		return t - t%r.Every + r.Length
	}
	return t
}

func (r *serving) send(a answer, now int64) {
	if a.to.fd < 0 {
		return
	}
	r.res.Late.Record(now - a.due)
	// A short write means that the client does not read. Its request then has no complete answer.
	if _, errno := r.call(unix.SYS_WRITE, a.to.fd, r.answer); errno != 0 {
		r.hangUp(a.to)
	}
}

func (r *serving) hangUp(c *conn) {
	delete(r.conns, int32(c.fd))
	unix.Close(c.fd)
	c.fd = -1
}

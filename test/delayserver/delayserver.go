// SPDX-License-Identifier: Apache-2.0

// Package delayserver answers requests after delays that are known beforehand:
// what a measurement of latency is held against. Delays are drawn from a
// distribution whose percentiles are known exactly, or all answers stop for a
// while at set times.
//
// It reads nothing out of a request but its end, and says of every answer how
// late it was: whoever holds a measurement against the distribution must know
// that the server kept to it.
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

// Config of a server. Durations are in ns.
type Config struct {
	// Address to listen on; port 0 takes any.
	Address netip.AddrPort
	// End of every request, and Answer to each.
	End, Answer string
	// Delays from the arrival of a request to its answer; zero: none. Seed of
	// their draws.
	Delays Distribution
	Seed   uint64
	// Every so often nothing is answered for Length; 0: never.
	Every, Length int64
	// Spin is how long before an answer is due the thread stops sleeping.
	Spin int64
	// Alone says that the process has nothing else to do: the runtime's signals
	// for preemption are then blocked, and the collector must be off.
	Alone bool
	// Placement of the thread.
	thread.Setup
}

// Result of a run.
type Result struct {
	Requests int64
	// Late is how long after it was due each answer was sent.
	Late *stats.Histogram
}

// Memcached answers every get with a miss, and HTTP every GET with one byte.
func Memcached(c Config) Config { c.End, c.Answer = "\n", "END\r\n"; return c }
func HTTP(c Config) Config {
	c.End, c.Answer = "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
	return c
}

// A Server is running from Start to Stop.
type Server struct {
	addr netip.AddrPort
	wake int
	done chan error
	res  Result
}

// Addr is where it listens.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Stop ends the server and says what it did.
func (s *Server) Stop() (Result, error) {
	if _, err := unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return Result{}, err
	}
	err := <-s.done
	unix.Close(s.wake)
	return s.res, err
}

// answer is one that is due.
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
	part []byte // of a request
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

// wait is epoll_pwait2(2), for so many ns.
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

// call reads or writes without the runtime, which it does not block.
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
	if err := r.Setup.Lock(); err != nil { // the thread ends with the goroutine
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
			return nil // none is left, or it has gone again
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

// receive takes what has come on c and plans the answers.
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
		// Answers keep the order of their requests.
		c.last = max(c.last, r.awake(now+r.Delays.draw(r.rng)))
		heap.Push(&r.due, answer{c.last, c})
	}
}

// awake is when something due at t is answered, given the stalls.
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
	// What does not fit would be the client's fault, and a request without an answer.
	if _, errno := r.call(unix.SYS_WRITE, a.to.fd, r.answer); errno != 0 {
		r.hangUp(a.to)
	}
}

func (r *serving) hangUp(c *conn) {
	delete(r.conns, int32(c.fd))
	unix.Close(c.fd)
	c.fd = -1
}

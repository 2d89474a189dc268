// SPDX-License-Identifier: Apache-2.0

package memserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/sock"
	"github.com/niclane/niclane/bench/part/thread"
)

// A Server is a listening socket and, after Serve, its threads.
type Server struct {
	cfg      Config
	store    *store
	listener int
	addr     netip.AddrPort
	workers  []*worker

	open              atomic.Int64 // connections now
	accepted, refused atomic.Uint64
	gets, hits, sets  atomic.Uint64
	cpuTime           atomic.Int64
	next              int // worker of the next connection; only worker 0 uses this field
}

// worker is one serving thread. Worker 0 also accepts.
type worker struct {
	*Server
	epfd, wake int
	mu         sync.Mutex // protects conns: worker 0 adds connections to all workers
	conns      map[int32]*conn
}

// Run listens and serves until ctx ends, then returns its counters.
func Run(ctx context.Context, c Config) (Result, error) {
	s, err := Listen(c)
	if err != nil {
		return Result{}, err
	}
	return s.Serve(ctx)
}

// Listen opens the listening socket. The kernel accepts connections from then on; Serve answers
// them.
func Listen(c Config) (*Server, error) {
	c, addr, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	fd, got, err := sock.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("memserver: %w", err)
	}
	return &Server{cfg: c, store: newStore(c.MaxMemory), listener: fd, addr: got}, nil
}

// Addr returns the address on which s listens.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Serve answers until ctx ends. It may be called once.
func (s *Server) Serve(ctx context.Context) (Result, error) {
	defer unix.Close(s.listener)
	if n := s.cfg.Threads + 1; runtime.GOMAXPROCS(0) < n {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		for _, w := range s.workers {
			unix.Close(w.epfd)
			unix.Close(w.wake)
		}
	}()
	for range s.cfg.Threads {
		w := &worker{Server: s, epfd: -1, wake: -1, conns: make(map[int32]*conn)}
		s.workers = append(s.workers, w)
		var err error
		if w.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return Result{}, fmt.Errorf("memserver: epoll: %w", err)
		}
		if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return Result{}, fmt.Errorf("memserver: eventfd: %w", err)
		}
		if err := w.add(w.wake, unix.EPOLLIN); err != nil {
			return Result{}, fmt.Errorf("memserver: %w", err)
		}
	}
	if err := s.workers[0].add(s.listener, unix.EPOLLIN); err != nil {
		return Result{}, fmt.Errorf("memserver: %w", err)
	}
	var wg sync.WaitGroup
	for _, w := range s.workers {
		wg.Go(func() {
			if err := w.serve(); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done()
	for _, w := range s.workers {
		one := [8]byte{1}
		if _, err := unix.Write(w.wake, one[:]); err != nil {
			panic(err) // cannot fail: the eventfd is 0, and 1 fits
		}
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return s.result(), fmt.Errorf("memserver: %w", err)
	}
	return s.result(), nil
}

func (s *Server) result() Result {
	return Result{
		Connections: s.accepted.Load(), Refused: s.refused.Load(),
		Gets: s.gets.Load(), Hits: s.hits.Load(), Sets: s.sets.Load(),
		Items: s.store.items.Load(), Memory: s.store.used.Load(),
		CPUTime: s.cpuTime.Load(),
	}
}

func (t *worker) add(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl",
		unix.EpollCtl(t.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// poll sets the events for which c waits.
func (t *worker) poll(c *conn, events uint32) bool {
	if c.polled == events {
		return true
	}
	c.polled = events
	return unix.EpollCtl(t.epfd, unix.EPOLL_CTL_MOD, c.fd, &unix.EpollEvent{Events: events, Fd: int32(c.fd)}) == nil
}

// serve answers the worker's connections on one thread. The goroutine stays locked to the thread, so
// that the thread ends with it.
func (t *worker) serve() error {
	if err := t.cfg.Setup.Lock(); err != nil {
		return err
	}
	defer func() {
		t.cpuTime.Add(thread.CPUTime())
		for _, c := range t.conns {
			unix.Close(c.fd)
		}
	}()
	events := make([]unix.EpollEvent, 128)
	for {
		n, err := unix.EpollWait(t.epfd, events, -1)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, ev := range events[:max(n, 0)] {
			switch int(ev.Fd) {
			case t.wake:
				return nil
			case t.listener:
				t.accept()
			default:
				t.mu.Lock()
				c := t.conns[ev.Fd]
				t.mu.Unlock()
				if c != nil && !t.pump(c) {
					t.drop(c)
				}
			}
		}
	}
}

func (t *worker) drop(c *conn) {
	t.mu.Lock()
	delete(t.conns, int32(c.fd))
	t.mu.Unlock()
	unix.Close(c.fd)
	t.open.Add(-1)
}

// accept accepts waiting connections and distributes them in turn.
func (t *worker) accept() {
	for range 64 {
		fd, _, err := unix.Accept4(t.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.EINTR, unix.ECONNABORTED:
			continue
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			// The listener stays readable: give other threads time to close connections.
			time.Sleep(time.Millisecond)
			return
		default:
			return
		}
		if t.open.Load() >= int64(t.cfg.MaxConnections) {
			t.refused.Add(1)
			unix.Close(fd)
			continue
		}
		t.open.Add(1)
		t.accepted.Add(1)
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // without it, answers are only slower
		w := t.workers[t.next]
		t.next = (t.next + 1) % len(t.workers)
		c := &conn{fd: fd, in: make([]byte, 0, inSize), polled: unix.EPOLLIN}
		w.mu.Lock()
		w.conns[int32(fd)] = c
		w.mu.Unlock()
		if err := w.add(fd, unix.EPOLLIN); err != nil {
			w.drop(c)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/sock"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/thread"
)

var errClosed = errors.New("closed by the server")

// longestSleep bounds how late a cancelled context is noticed.
const longestSleep = 50e6

// burst bounds how many due requests are sent before replies are read again.
const burst = 64

// run is the state of one Run; only its own thread touches it.
type run struct {
	cfg   Config
	keys  *keyset
	clock thread.Clock
	epfd  int
	conns []conn
	live  int
	// outstanding requests on live connections, sent or not.
	outstanding int64
	res         Result
	cancelled   atomic.Bool
}

// Run generates load as c says and returns what it measured. It fails on bad
// parameters, when the server cannot be reached or filled, and when ctx ends
// first; anything that goes wrong after the start is counted in the Result.
//
// It turns the garbage collector of the whole process off while it runs, and
// is meant to have the process for itself.
func Run(ctx context.Context, c Config) (Result, error) {
	c, addr, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	keys := newKeyset(c)
	if c.Prefill {
		if err := prefill(ctx, addr, c, keys); err != nil {
			return Result{}, fmt.Errorf("load: %w", err)
		}
	}
	// A second P: the generator's thread never gives its own back.
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))

	r := &run{cfg: c, keys: keys}
	defer context.AfterFunc(ctx, func() { r.cancelled.Store(true) })()
	done := make(chan error, 1)
	go func() { done <- r.onThread(addr) }()
	if err := <-done; err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return Result{}, fmt.Errorf("load: %w", err)
	}
	return r.res, nil
}

// onThread prepares the calling goroutine's thread and runs on it. The thread
// ends with the goroutine.
func (r *run) onThread(addr netip.AddrPort) error {
	if err := r.cfg.Setup.Lock(); err != nil {
		return err
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	r.epfd = epfd
	defer unix.Close(epfd)
	defer func() {
		for i := range r.conns {
			if !r.conns[i].dead {
				unix.Close(r.conns[i].fd)
			}
		}
	}()
	// Two of the largest replies, so that one read takes what is there.
	inSize := max(16<<10, 2*(r.cfg.ValueBytes+maxLine))
	r.conns = make([]conn, 0, r.cfg.Connections)
	for i := range r.cfg.Connections {
		fd, err := sock.Dial(addr, time.Duration(r.cfg.ConnectTimeout), noDelay)
		if err != nil {
			return err
		}
		r.conns = append(r.conns, conn{fd: fd, index: int32(i), ring: make([]pending, 256), in: make([]byte, inSize)})
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
		if r.cancelled.Load() {
			return context.Canceled
		}
	}
	r.live = len(r.conns)
	r.res.Latency, r.res.Uncorrected = stats.NewHistogram(), stats.NewHistogram()
	r.res.Lateness, r.res.Wakeup = stats.NewHistogram(), stats.NewHistogram()
	if err := thread.BlockPreemption(); err != nil {
		return fmt.Errorf("block SIGURG: %w", err)
	}
	return r.loop()
}

func noDelay(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	return nil
}

// loop sends and receives until everything is answered or given up.
func (r *run) loop() error {
	cfg := &r.cfg
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6e69636c616e65))
	gap := 1e9 / cfg.Rate
	r.clock = thread.StartClock()
	// The first request is due a little later, when the loop is running.
	first := r.clock.Now() + 1e6
	counted := first + cfg.Warmup
	end := counted + cfg.Duration
	due := func(k int64, _ float64) float64 { return float64(k) * gap }
	if cfg.Arrivals == Poisson {
		due = func(_ int64, last float64) float64 { return last + rng.ExpFloat64()*gap }
	}
	var (
		k      int64
		offset = due(0, 0)
		next   = first + int64(offset)
		turn   int
		cpu    = int64(-1)
		events [64]unix.EpollEvent
	)
	for {
		now := r.clock.Now()
		for n := 0; next <= now && next < end && n < burst; n++ {
			c := r.pick(&turn)
			p := pending{intended: next, key: int32(rng.IntN(cfg.Keys)), counted: next >= counted}
			if p.counted {
				if cpu < 0 {
					cpu = thread.CPUTime()
				}
				r.res.Intended++
				r.res.Wakeup.Record(now - next)
			}
			c.push(p)
			if !c.dead {
				r.outstanding++
				r.flush(c)
			}
			k++
			offset = due(k, offset)
			next = first + int64(offset)
			now = r.clock.Now()
		}
		until := next
		if next >= end {
			if r.outstanding == 0 && now >= end || now >= end+cfg.Timeout {
				break
			}
			until = end
			if now >= end {
				until = end + cfg.Timeout
			}
		}
		if r.cancelled.Load() {
			return context.Canceled
		}
		sleep := until - now
		if sleep > cfg.Spin {
			sleep -= cfg.Spin
		} else {
			sleep = 0
		}
		n, errno := wait(r.epfd, events[:], min(sleep, longestSleep))
		if errno != 0 && errno != unix.EINTR {
			return fmt.Errorf("epoll_pwait2: %w", errno)
		}
		for i := range max(n, 0) {
			c := &r.conns[events[i].Fd]
			if c.dead || events[i].Events&^unix.EPOLLOUT == 0 {
				r.flush(c)
				continue
			}
			r.receive(c)
			if events[i].Events&unix.EPOLLOUT != 0 {
				r.flush(c)
			}
		}
	}
	r.finish(r.clock.Now(), counted, cpu)
	return nil
}

// pick returns the next live connection in turn, or a dead one when none is
// left: its requests then count as unanswered.
func (r *run) pick(turn *int) *conn {
	for range r.conns {
		c := &r.conns[*turn]
		*turn = (*turn + 1) % len(r.conns)
		if !c.dead || r.live == 0 {
			return c
		}
	}
	panic("no connection")
}

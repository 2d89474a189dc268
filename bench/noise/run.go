// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/sock"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/stats"
)

// run is the state of one Run. Only its own thread uses it.
type run struct {
	cfg      Config
	addr     netip.AddrPort
	ctx      context.Context
	clock    thread.Clock
	epfd     int
	wake     int // eventfd, readable when ctx has ended
	listener int // -1 unless receiving
	source   int // memfd from which the sender sends
	flows    []*flow
	open     int
	res      Result

	started bool
	start   int64 // start of the first interval
	next    int64 // end of the current interval
	bytes   int64 // bytes received, or acknowledged at the last sample
	marked  int64 // value of bytes at the start of the current interval
	rtts    mean  // round trip times of the whole run, TCP only
	latency mean  // latencies of the current interval, see Result.LatencyOf
	resent  uint64
	lost    int64 // value of res.Lost at the start of the current interval
}

type mean struct{ sum, n int64 }

func (m *mean) add(v int64) { m.sum += v; m.n++ }

// take returns the mean and resets it. Without values it returns 0.
func (m *mean) take() int64 {
	v := m.sum / max(m.n, 1)
	*m = mean{}
	return v
}

type flow struct {
	fd          int
	acked       int64
	retransmits uint64
	closed      bool
}

// sourceSize is the size of the memory from which all flows send repeatedly.
const sourceSize = 1 << 20

// Run sends or receives, as c.Role says, until c.Duration has passed, all flows have closed, or ctx
// ends. It returns the traffic that was sent or received. The end of ctx is an error only if no
// flow was open before.
func Run(ctx context.Context, c Config) (Result, error) {
	c, addr, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	r := &run{cfg: c, addr: addr, ctx: ctx, epfd: -1, wake: -1, listener: -1, source: -1}
	defer r.close()
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return Result{}, fmt.Errorf("noise: eventfd: %w", err)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		one := [8]byte{1}
		if _, err := unix.Write(r.wake, one[:]); err != nil {
			panic(err) // cannot happen: an eventfd at 0 accepts 1
		}
	})
	done := make(chan error, 1)
	go func() { done <- r.onThread() }()
	err = <-done
	if !stop() {
		<-ended // wait, because the goroutine writes to wake, which is closed next
	}
	if err != nil {
		return Result{}, fmt.Errorf("noise: %w", err)
	}
	return r.res, nil
}

func (r *run) close() {
	for _, f := range r.flows {
		if !f.closed {
			unix.Close(f.fd)
		}
	}
	for _, fd := range []int{r.epfd, r.wake, r.listener, r.source} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// onThread locks the calling goroutine to its thread, prepares the thread and runs r on it. The
// thread ends with the goroutine.
func (r *run) onThread() error {
	if err := r.cfg.Setup.Lock(); err != nil {
		return err
	}
	var err error
	if r.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if err := r.watch(r.wake, unix.EPOLLIN); err != nil {
		return err
	}
	r.res.Role, r.res.Protocol, r.res.Interval = r.cfg.Role, r.cfg.Protocol, r.cfg.Interval
	r.clock = thread.StartClock()
	if r.cfg.Protocol == UDP {
		return r.datagrams()
	}
	if r.cfg.Role == Receive {
		if r.listener, _, err = sock.Listen(r.addr); err != nil {
			return err
		}
		if err := r.watch(r.listener, unix.EPOLLIN); err != nil {
			return err
		}
	} else {
		if err := r.fillSource(); err != nil {
			return err
		}
		for range r.cfg.Flows {
			fd, err := r.dial()
			if err != nil {
				return err
			}
			if err := r.add(fd, unix.EPOLLOUT); err != nil {
				return err
			}
		}
		r.begin()
	}
	return r.loop()
}

// early returns the error for a run that was ended before it had a result. On a host with few
// processors, the caller may end the run before flows are open.
func (r *run) early() error {
	return fmt.Errorf("asked to end when %d of %d flows were open: %w", r.res.Flows, r.cfg.Flows, context.Cause(r.ctx))
}

func (r *run) watch(fd int, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if err := unix.EpollCtl(r.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (r *run) add(fd int, events uint32) error {
	// tcpi_bytes_acked counts the SYN of the side that connects as one byte.
	r.flows = append(r.flows, &flow{fd: fd, acked: 1})
	r.open++
	r.res.Flows++
	return r.watch(fd, events)
}

func (r *run) begin() {
	r.started = true
	r.start = r.clock.Now()
	r.next = r.start + r.cfg.Interval
	r.res.StartMono = r.clock.Start() + r.start
	r.res.Latency = stats.NewHistogram()
}

func (r *run) loop() error {
	byFD := func(fd int32) *flow {
		for _, f := range r.flows {
			if f.fd == int(fd) && !f.closed {
				return f
			}
		}
		return nil
	}
	var events [64]unix.EpollEvent
	cpu := thread.CPUTime()
	for {
		now := r.clock.Now()
		if r.started {
			if now >= r.next {
				r.sample()
				now = r.tick(r.clock.Now())
			}
			if r.cfg.Duration > 0 && now >= r.start+r.cfg.Duration || r.open == 0 && r.res.Flows >= r.cfg.Flows {
				break
			}
		}
		timeout := -1
		if r.started {
			until := r.next
			if r.cfg.Duration > 0 {
				until = min(until, r.start+r.cfg.Duration)
			}
			timeout = int((until-now)/1e6) + 1
		}
		n, err := unix.EpollWait(r.epfd, events[:], timeout)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		r.res.Wakeups++
		ended := false
		for _, ev := range events[:max(n, 0)] {
			switch int(ev.Fd) {
			case r.wake:
				ended = true // handle the events before it first
			case r.listener:
				if err := r.accept(); err != nil {
					return err
				}
			default:
				if f := byFD(ev.Fd); f != nil {
					if r.cfg.Role == Send {
						r.send(f)
					} else {
						r.receive(f)
					}
				}
			}
		}
		if ended && !r.started {
			return r.early()
		}
		if ended {
			break
		}
	}
	r.finish(cpu)
	return nil
}

// tick closes the intervals that end by time now, and returns now. All that was counted since the
// last call belongs to the first of these intervals.
func (r *run) tick(now int64) int64 {
	for ; now >= r.next; r.next += r.cfg.Interval {
		r.mark()
	}
	return now
}

// mark closes the current interval.
func (r *run) mark() {
	res := &r.res
	res.Intervals = append(res.Intervals, r.bytes-r.marked)
	r.marked = r.bytes
	latency := r.latency.take()
	switch {
	case r.cfg.Role == Receive && r.cfg.Protocol == UDP:
		res.IntervalLatency = append(res.IntervalLatency, latency)
		res.IntervalLost = append(res.IntervalLost, res.Lost-r.lost)
		r.lost = res.Lost
	case r.cfg.Role == Send:
		res.IntervalRTT = append(res.IntervalRTT, latency)
		if r.cfg.Protocol == TCP {
			res.IntervalRetransmits = append(res.IntervalRetransmits, res.Retransmits-r.resent)
			r.resent = res.Retransmits
		}
	}
}

// total fills in the rest of the result, for a run that ends at now.
func (r *run) total(cpu, now int64) {
	res := &r.res
	if n := len(res.Intervals); r.cfg.Interval-(r.next-now) > 1e6 || n == 0 {
		r.mark()
	} else { // add a rest of at most 1 ms to the last interval
		res.Intervals[n-1] += r.bytes - r.marked
	}
	res.CPUTime = thread.CPUTime() - cpu
	res.Duration = now - r.start
	res.Bytes = r.bytes
	res.Goodput = int64(float64(r.bytes) * 8e9 / float64(max(res.Duration, 1)))
	if res.Latency.Count() == 0 {
		res.Latency, res.LatencyOf = nil, ""
	}
	if res.Flows < r.cfg.Flows {
		r.warn("%d of %d flows opened", res.Flows, r.cfg.Flows)
	}
	if r.cfg.Role == Send && r.cfg.Rate > 0 && res.Goodput < r.cfg.Rate*95/100 {
		r.warn("goodput %d bit/s is %.1f %% of the %d asked for", res.Goodput,
			100*float64(res.Goodput)/float64(r.cfg.Rate), r.cfg.Rate)
	}
}

func (r *run) warn(format string, a ...any) {
	r.res.Warnings = append(r.res.Warnings, fmt.Sprintf(format, a...))
}

func (r *run) finish(cpu int64) {
	r.sample()
	r.total(cpu, r.clock.Now())
	r.res.RTTMean = r.rtts.take()
	for _, f := range r.flows {
		if f.closed {
			continue
		}
		// A reset discards the send buffer. Otherwise the buffer would still be sent during the next
		// measurement.
		if r.cfg.Role == Send {
			_ = unix.SetsockoptLinger(f.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
		f.closed = true
		unix.Close(f.fd)
	}
}

// dial opens one paced connection. While the peer refuses, it tries again until ConnectTimeout.
func (r *run) dial() (int, error) {
	deadline := r.clock.Now() + r.cfg.ConnectTimeout
	for {
		fd, err := sock.Dial(r.addr, time.Duration(max(deadline-r.clock.Now(), 1e6)), r.options)
		if err == nil {
			return fd, nil
		}
		if r.clock.Now() >= deadline {
			return -1, err
		}
		p := []unix.PollFd{{Fd: int32(r.wake), Events: unix.POLLIN}}
		if n, _ := unix.Poll(p, 20); n > 0 {
			return -1, r.early()
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/load/proto"
	"github.com/niclane/niclane/bench/part/thread"
)

const (
	// longestSleep limits how late a cancelled context is noticed.
	longestSleep = 50e6
	// burst limits how many due requests are sent before replies are read again.
	burst = 64
	// batch limits how many bytes of requests are encoded before they are sent.
	batch = 64 << 10
	// inBytes is the size of one read; larger replies are parsed in pieces.
	inBytes = 256 << 10
	// scan is how many connections are checked every scanEvery ns for requests over the timeout.
	scan      = 64
	scanEvery = 5e6
	maxWait   = time.Second // between attempts to connect
	// leastHiccup is the shortest hiccup that is recorded, ns. A turn of the loop that finds
	// nothing to do takes a tenth of it, about 0.5 µs.
	leastHiccup = 5e3
)

// worker is one generating thread. Only that thread uses it.
type worker struct {
	cfg        *Config
	number, of int // index of this worker, number of workers
	codec      proto.Codec
	clock      thread.Clock
	rng        *rand.Rand
	dialer     *dialer
	cancelled  *atomic.Bool

	epfd        int
	conns       []conn
	active      int // connections in use in this step
	live        int
	outstanding int     // requests on live connections, sent or not
	free        []int32 // ring of connections with room
	freeAt      int
	freeLen     int
	waiting     queue   // requests for which no connection has room
	more        []int32 // connections that may have more data to read
	reading     []int32 // connections of more that are read in this turn
	in          []byte
	text, plain []byte // buffers for TLS
	scanned     int
	scanAt      int64
	seen        int64 // the last reading of the clock, or the end of a sleep; 0: not in this step
	first       int64 // when the step's first request is due
	dueAt       int64 // when the next request is due
	due         func() float64
	end         int64 // end of the step: no request is due after it
	counted     int64
	account     *account
}

// share returns how many of n things worker i of t workers gets.
func share(n, i, t int) int { return (n + t - 1 - i) / t }

// prepare locks the calling goroutine to its thread and opens the worker's connections.
func (w *worker) prepare(ctx context.Context, t *target, connections int) error {
	setup := w.cfg.Setup
	if w.of > 1 && len(setup.CPUs) > 0 {
		setup.CPUs = setup.CPUs[w.number : w.number+1]
	}
	if err := setup.Lock(); err != nil {
		return err
	}
	var err error
	if w.codec, err = w.cfg.codec(); err != nil {
		return err
	}
	if w.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if w.dialer, err = newDialer(t); err != nil {
		return err
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1}
	if err := unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, w.dialer.event, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	w.rng = rand.New(rand.NewPCG(w.cfg.Seed+uint64(w.number)<<32, 0x6e69636c616e65))
	w.in = make([]byte, inBytes)
	if t.tls != nil {
		w.text = make([]byte, inBytes)
	}
	n := share(connections, w.number, w.of)
	w.free = make([]int32, n)
	w.more, w.reading = make([]int32, 0, n), make([]int32, 0, n)
	w.waiting = newQueue(1024)
	w.conns = make([]conn, n)
	room := max(w.cfg.Pipeline, 1)
	if w.cfg.Pipeline == 0 || room > 256 {
		room = 256
	}
	for i := range w.conns {
		w.conns[i] = conn{index: int32(i), fd: -1, sent: newQueue(room)}
	}
	for i := range w.conns {
		fd, l, err := t.open(ctx)
		if err != nil {
			return err
		}
		if err := w.adopt(&w.conns[i], fd, l); err != nil {
			return err
		}
		if w.cancelled.Load() {
			return context.Canceled
		}
	}
	if err := thread.BlockPreemption(); err != nil {
		return fmt.Errorf("block SIGURG: %w", err)
	}
	return nil
}

// close frees everything. It may be called after prepare failed.
func (w *worker) close() {
	if w.dialer != nil {
		w.dialer.close()
	}
	for i := range w.conns {
		if c := &w.conns[i]; c.fd >= 0 {
			unix.Close(c.fd)
		}
	}
	if w.epfd > 0 {
		unix.Close(w.epfd)
	}
}

// adopt gives c a connected socket.
func (w *worker) adopt(c *conn, fd int, l *layer) error {
	c.fd, c.tls, c.state, c.failures = fd, l, live, 0
	c.parser = w.codec.Parser()
	w.live++
	ev := unix.EpollEvent{Events: readable, Fd: c.index}
	if err := epollCtl(w.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// readable are the events of a connection that epoll reports, edge-triggered. A level-triggered epoll
// would check each connection that was read once more in the next turn, only to find nothing
// (ep_send_events(), tcp_poll()). EPOLLRDHUP also reports an end that arrives with the last bytes.
const readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&(1<<32-1)

// reopen connects c again after a delay in ns.
func (w *worker) reopen(c *conn, after int64) {
	c.state = opening
	w.dialer.open(c.index, time.Duration(after))
}

// reopened takes the connections that the dialer has opened again.
func (w *worker) reopened() {
	for _, o := range w.dialer.take() {
		c := &w.conns[o.index]
		if o.err != nil {
			w.account.res.ConnectErrors++
			w.account.fault("reconnect: " + o.err.Error())
			if c.failures++; !w.cfg.Reconnect {
				c.state = gone
				w.account.res.ConnectionsLost++
				continue
			}
			w.reopen(c, min(w.cfg.Backoff<<min(c.failures, 20), int64(maxWait)))
			continue
		}
		w.account.res.Reconnects++
		if err := w.adopt(c, o.fd, o.tls); err != nil {
			w.lose(c, err)
			continue
		}
		w.next(c)
	}
}

// room reports whether c can take a request.
func (w *worker) room(c *conn) bool {
	return c.state == live && !c.blocked && int(c.index) < w.active && len(c.out)-c.outAt < batch &&
		(w.cfg.Pipeline == 0 || c.sent.len() < w.cfg.Pipeline)
}

// offer adds c to the free connections if it has room.
func (w *worker) offer(c *conn) {
	if c.offered || !w.room(c) {
		return
	}
	c.offered = true
	at := w.freeAt + w.freeLen
	if at >= len(w.free) {
		at -= len(w.free)
	}
	w.free[at] = c.index
	w.freeLen++
}

// pick takes the connection that has been free the longest, nil if there is none.
func (w *worker) pick() *conn {
	for w.freeLen > 0 {
		c := &w.conns[w.free[w.freeAt]]
		if w.freeAt++; w.freeAt == len(w.free) {
			w.freeAt = 0
		}
		w.freeLen--
		c.offered = false
		if w.room(c) {
			return c
		}
	}
	return nil
}

// next gives c its next requests after an answer, a loss or a connect, and sends them at once. To
// read all connections first was slower: the server then worked alternately with the generator and
// not in parallel (64 connections, nginx on the other processor).
func (w *worker) next(c *conn) {
	switch {
	case c.state != live:
		return
	case !w.account.open:
		if !w.room(c) {
			break
		}
		for now := w.now(); now < w.end && w.room(c); {
			p := pending{intended: now, noticed: now, ticket: w.codec.Pick(w.rng.Uint64()), counted: now >= w.counted}
			w.account.due(&p)
			w.issue(c, p, now, false)
		}
	case w.waiting.len() > 0 && w.room(c):
		for now := w.now(); w.waiting.len() > 0 && w.room(c); w.waiting.pop() {
			w.issue(c, *w.waiting.front(), now, true)
		}
	}
	if c.outAt < len(c.out) {
		w.flush(c)
	}
	if w.account.open {
		w.offer(c)
	}
}

// arrivals returns a function that returns the intended times of one worker's requests, in ns after
// the step's first time. With constant arrivals, each of the w.of workers has every w.of-th time, so
// that the times of all workers together have equal gaps. With Poisson arrivals, each worker has a
// Poisson process of its own. The sum of such processes is a Poisson process too.
func (w *worker) arrivals(rate float64) func() float64 {
	gap := 1e9 / rate
	if w.cfg.Arrivals == Poisson {
		at := 0.0
		gap *= float64(w.of)
		return func() float64 {
			at += w.rng.ExpFloat64() * gap
			return at
		}
	}
	k := w.number - w.of
	return func() float64 {
		k += w.of
		return float64(k) * gap
	}
}

// step sends and receives until everything is answered or given up. Its first request is due at
// time first. An error ends the run.
func (w *worker) step(s Step, first int64) (Result, error) {
	open := w.cfg.Mode == Open
	w.counted = first + s.Warmup
	w.end = w.counted + s.Duration
	w.active = share(s.Connections, w.number, w.of)
	w.account = newAccount(w.cfg, w.counted, s.Duration)
	w.first, w.dueAt, w.seen = first, math.MaxInt64, 0
	if open {
		w.due = w.arrivals(s.Rate)
		w.dueAt = first + int64(w.due())
		for i := range w.conns {
			w.offer(&w.conns[i])
		}
	}
	started, idle := false, false
	before := int64(0)
	var began, from, to moment // at the start of the step, and at both ends of the counted time
	var events [64]unix.EpollEvent
	for {
		now := w.now()
		if idle && now-before > leastHiccup && before >= w.counted {
			w.account.hiccups.Record(now - before)
		}
		if began.unset() && now >= first {
			began = w.moment()
		}
		if from.unset() && now >= w.counted {
			from = w.moment()
		}
		if !open && !started && now >= first {
			started = true
			for i := range w.active {
				w.next(&w.conns[i])
			}
		}
		now = w.sendDue(now)
		until := w.end
		switch {
		case !started && !open:
			until = first
		case w.dueAt < w.end:
			until = w.dueAt
		case now >= w.end:
			if to.unset() {
				to = w.moment()
			}
			until += w.cfg.Timeout
			if w.finished() || now >= until {
				return w.result(s, now, began, from, to), nil
			}
		}
		if w.cancelled.Load() {
			s.Duration = now - w.counted
			if s.Duration <= 0 {
				return Result{}, context.Canceled
			}
			w.account.res.Partial = true
			return w.result(s, now, began, from, to), context.Canceled
		}
		if w.cfg.Reconnect && now >= w.scanAt {
			w.scanAt = now + scanEvery
			w.overdue(now)
		}
		sleep := until - now
		if sleep > w.cfg.Spin && len(w.more) == 0 {
			sleep -= w.cfg.Spin
		} else {
			sleep = 0
		}
		before = now
		sleep = min(sleep, longestSleep)
		n, errno := wait(w.epfd, events[:], sleep)
		w.seen = before + sleep
		idle = sleep == 0 && n == 0 && len(w.more) == 0
		if errno != 0 && errno != unix.EINTR {
			return Result{}, fmt.Errorf("epoll_pwait2: %w", errno)
		}
		for i := range max(n, 0) {
			e := &events[i]
			if e.Fd < 0 {
				w.reopened()
				continue
			}
			c := &w.conns[e.Fd]
			if c.state != live { // closed after epoll reported the event
				continue
			}
			if e.Events&unix.EPOLLOUT != 0 {
				w.flush(c)
				w.next(c)
			}
			if e.Events&^unix.EPOLLOUT != 0 && c.state == live {
				c.ending = c.ending || e.Events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0
				c.more = false
				w.receive(c)
			}
			if open {
				w.sendDue(w.now())
			}
		}
		w.reading, w.more = w.more, w.reading[:0]
		for _, i := range w.reading {
			if c := &w.conns[i]; c.more {
				c.more = false
				w.receive(c)
				if open {
					w.sendDue(w.now())
				}
			}
		}
	}
}

// sendDue sends the requests that are due at time now and returns the time after that. The loop calls
// it after every connection that it has read. To read 16 answers that arrive together takes 50 µs,
// which would delay requests that become due in that time.
func (w *worker) sendDue(now int64) int64 {
	for n := 0; w.dueAt <= now && w.dueAt < w.end && n < burst; n++ {
		p := pending{intended: w.dueAt, noticed: now, ticket: w.codec.Pick(w.rng.Uint64()),
			counted: w.dueAt >= w.counted}
		w.account.due(&p)
		if c := w.pick(); c == nil {
			w.waiting.push(p)
		} else {
			w.issue(c, p, now, false)
			w.flush(c)
			w.offer(c)
		}
		w.dueAt = w.first + int64(w.due())
		now = w.now()
	}
	return now
}

// finished reports whether no more answers can come.
func (w *worker) finished() bool {
	if w.outstanding > 0 {
		return false
	}
	if w.waiting.len() == 0 {
		return true
	}
	for i := range w.conns {
		if w.conns[i].state != gone {
			return false
		}
	}
	return true
}

// overdue gives up connections whose oldest request is over the timeout.
func (w *worker) overdue(now int64) {
	for range min(scan, len(w.conns)) {
		c := &w.conns[w.scanned]
		w.scanned = (w.scanned + 1) % len(w.conns)
		if c.state == live && c.sent.len() > 0 && now-c.sent.front().actual > w.cfg.Timeout {
			w.lose(c, fmt.Errorf("no answer within %v", time.Duration(w.cfg.Timeout)))
		}
	}
}

// result closes the account of a step. Unanswered requests stay in the distribution with the time
// that they have waited. Their connections are closed.
func (w *worker) result(s Step, now int64, began, from, to moment) Result {
	var retransmits uint64
	var rtt, measured int64
	ciphers := map[string]int64{}
	for i := range w.conns {
		c := &w.conns[i]
		if c.state != live {
			continue
		}
		if info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			retransmits += uint64(info.Total_retrans)
			rtt += int64(info.Rtt) * 1000
			measured++
		}
		ciphers[c.tls.cipher()]++
		if c.sent.len() > 0 {
			w.hangUp(c)
		}
	}
	for ; w.waiting.len() > 0; w.waiting.pop() {
		w.account.lost(w.waiting.front(), false, now)
	}
	r := w.account.close(s.Duration)
	r.StartMono = w.clock.Start() + w.counted
	r.Retransmits, r.Ciphers = retransmits, ciphers
	if measured > 0 {
		r.RTT = rtt / measured
	}
	if !from.unset() {
		if to.unset() {
			to = w.moment()
		}
		r.CPUTime = to.cpu - from.cpu
		if w.account.spins {
			// Away includes the time without a processor after the step should have begun.
			r.Away = max(to.wall-w.first-(to.cpu-began.cpu), 0)
		}
	}
	return r
}

// A moment is a time and the processor time that the thread had used until then, both ns.
type moment struct{ wall, cpu int64 }

func (m moment) unset() bool { return m == moment{} }

func (w *worker) moment() moment { return moment{w.now(), thread.CPUTime()} }

// renew opens the connections again that were closed in the last step.
func (w *worker) renew(ctx context.Context, t *target) error {
	for i := range w.conns {
		c := &w.conns[i]
		if c.state != gone {
			continue
		}
		fd, l, err := t.open(ctx)
		if err != nil {
			return fmt.Errorf("between steps: %w", err)
		}
		if err := w.adopt(c, fd, l); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/load/proto"
	"github.com/niclane/niclane/bench/part/thread"
)

// A Call makes one request with a library's client and blocks until the answer. After an error
// the request is lost. For a Failed reply, problem says why.
type Call func(t proto.Ticket) (r proto.Reply, problem string, err error)

// RunCalls does what Run does, for protocols whose client is a library. It starts c.Connections
// goroutines. Each has a Call of its own, made by newCall, and one request at a time. The accounting
// is that of Run: latency counts from the intended time, and requests wait if no goroutine is free.
// The hand-over between goroutines counts as the generator's own time (Result.Wakeup). A request
// takes a few µs more than with Run. The garbage collector stays on, because clients need it.
//
// Work in the Result has no bytes, because the client does not report them. filled is the work of
// the prefill, which the caller has done before.
func RunCalls(ctx context.Context, c Config, filled Work, newCall func(keys *proto.Keys) Call) (Result, error) {
	c, _, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if runtime.GOMAXPROCS(0) < 2 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // the pacing thread keeps a P of the Go scheduler
	}
	r, err := runCalls(ctx, &c, filled, newCall)
	if err != nil {
		return r, fmt.Errorf("load: %w", err)
	}
	return r, nil
}

func runCalls(ctx context.Context, c *Config, filled Work, newCall func(keys *proto.Keys) Call) (Result, error) {
	keys, err := c.NewKeys()
	if err != nil {
		return Result{}, err
	}
	var cancelled atomic.Bool
	defer context.AfterFunc(ctx, func() { cancelled.Store(true) })()
	rng := rand.New(rand.NewPCG(c.Seed, 0x6e69636c616e65))
	clock := thread.StartClock()
	return c.each(ctx, filled, 1, func(s Step) (Result, error) {
		p := &callers{cfg: c, step: s, clock: clock, keys: keys, rng: rng, cancelled: &cancelled}
		p.changed = sync.NewCond(&p.mu)
		if err := p.prepare(newCall); err != nil {
			return Result{}, err
		}
		defer p.close()
		var r Result
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err = c.Setup.Lock(); err == nil { // the thread ends with the goroutine
				r, err = p.run()
			}
		}()
		<-done
		return r, err
	})
}

// callers are the goroutines of one step, and the pacing thread, which gives them requests in time.
type callers struct {
	cfg       *Config
	step      Step
	clock     thread.Clock
	keys      *proto.Keys // of the pacing thread, which chooses requests
	rng       *rand.Rand
	cancelled *atomic.Bool
	counted   int64
	end       int64

	mu      sync.Mutex
	changed *sync.Cond // a slot has become idle
	slots   []*slot
	idle    []*slot
	waiting queue
	account *account
	over    bool // later answers are not counted
}

// A slot belongs to one goroutine, which is woken when p is set, and makes the call.
type slot struct {
	call Call
	wake chan struct{}
	p    pending
	on   bool // p is not answered yet
	sent bool
}

func (p *callers) prepare(newCall func(keys *proto.Keys) Call) error {
	for range p.step.Connections {
		keys, err := p.cfg.NewKeys()
		if err != nil {
			return err
		}
		s := &slot{call: newCall(keys), wake: make(chan struct{}, 1)}
		p.slots, p.idle = append(p.slots, s), append(p.idle, s)
		go p.serve(s) // close does not wait for it: a call may hang
	}
	return nil
}

func (p *callers) close() {
	for _, s := range p.slots {
		close(s.wake)
	}
}

// serve runs in the goroutine of a slot and makes the calls for the slot's requests.
func (p *callers) serve(s *slot) {
	for range s.wake {
		for p.serveOne(s) {
		}
	}
}

// serveOne makes one call and reports whether the slot has another request.
func (p *callers) serveOne(s *slot) bool {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return false
	}
	q := &s.p
	q.actual = p.clock.Now()
	waited := q.noticed != 0
	if !waited {
		q.noticed = q.actual
		p.account.due(q)
	}
	s.sent = true
	p.account.sent(q, waited)
	ticket := q.ticket
	p.mu.Unlock()

	r, problem, err := s.call(ticket)

	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	q.first = now
	if err != nil {
		p.account.lost(q, true, now)
		p.account.fault(err.Error())
	} else {
		p.account.done(q, r, now)
		if r.Outcome == proto.Failed {
			p.account.fault(problem)
		}
	}
	switch {
	case p.waiting.len() > 0:
		s.p, s.sent = *p.waiting.front(), false
		p.waiting.pop()
		return true
	case !p.account.open && now < p.end:
		s.p, s.sent = p.another(now), false
		return true
	}
	s.on = false
	p.idle = append(p.idle, s)
	p.changed.Signal()
	return false
}

// another returns the next request of a closed loop.
func (p *callers) another(now int64) pending {
	return pending{intended: now, ticket: p.keys.Pick(p.rng.Uint64()), counted: now >= p.counted}
}

// give gives request q to an idle slot. The caller makes sure that a slot is idle.
func (p *callers) give(q pending) {
	s := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	s.p, s.on, s.sent = q, true, false
	s.wake <- struct{}{}
}

// run hands out the requests of the step, waits for the answers and returns the result.
func (p *callers) run() (Result, error) {
	first := p.cfg.first(p.clock)
	p.counted = first + p.step.Warmup
	p.end = p.counted + p.step.Duration
	p.account = newAccount(p.cfg, p.counted, p.step.Duration)
	var cpu int64
	var err error
	if p.account.open {
		cpu, err = p.pace(first)
	} else {
		err = p.sleep(first)
		p.mu.Lock()
		for err == nil && len(p.idle) > 0 {
			p.give(p.another(p.clock.Now()))
		}
		p.mu.Unlock()
		if err == nil {
			err = p.sleep(p.counted)
		}
		cpu = processTime()
	}
	if err == nil {
		err = p.sleep(p.end)
	}
	used := processTime() - cpu
	if err == nil {
		p.drain()
	}
	return p.finish(used, err)
}

// pace hands out each request of the step when it is due. It returns the processor time that the
// process had used when the first counted request was due.
func (p *callers) pace(first int64) (int64, error) {
	due := (&worker{cfg: p.cfg, rng: p.rng, of: 1}).arrivals(p.step.Rate)
	cpu := processTime()
	counted := false
	for {
		next := first + int64(due())
		if next >= p.end {
			return cpu, nil
		}
		if err := p.sleep(next); err != nil {
			return cpu, err
		}
		q := pending{intended: next, ticket: p.keys.Pick(p.rng.Uint64()), counted: next >= p.counted}
		if q.counted && !counted {
			counted, cpu = true, processTime()
		}
		p.mu.Lock()
		if len(p.idle) > 0 {
			p.give(q)
		} else {
			q.noticed = p.clock.Now()
			p.account.due(&q)
			p.waiting.push(q)
		}
		p.mu.Unlock()
	}
}

// sleep sleeps until t; it returns an error if cancelled.
func (p *callers) sleep(t int64) error {
	for {
		if p.cancelled.Load() {
			return context.Canceled
		}
		left := t - p.clock.Now() - p.cfg.Spin
		if left > 0 {
			ts := unix.NsecToTimespec(min(left, longestSleep))
			_ = unix.Nanosleep(&ts, nil) // after EINTR, checks again
			continue
		}
		if p.clock.Now() >= t {
			return nil
		}
	}
}

// drain waits until all requests are answered, at most until the timeout after the step's end.
func (p *callers) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := false
	timer := time.AfterFunc(time.Duration(p.end+p.cfg.Timeout-p.clock.Now()), func() {
		p.mu.Lock()
		late = true
		p.mu.Unlock()
		p.changed.Signal()
	})
	defer timer.Stop()
	for len(p.idle) < len(p.slots) && !late {
		p.changed.Wait()
	}
}

// finish gives up the unanswered requests and closes the account.
func (p *callers) finish(used int64, err error) (Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	now := p.clock.Now()
	for _, s := range p.slots {
		if s.on {
			if !s.sent && s.p.noticed == 0 { // no goroutine has taken the request
				s.p.noticed = now
				p.account.due(&s.p)
			}
			p.account.lost(&s.p, s.sent, now)
		}
	}
	for ; p.waiting.len() > 0; p.waiting.pop() {
		p.account.lost(p.waiting.front(), false, now)
	}
	duration := p.step.Duration
	if err != nil {
		if duration = now - p.counted; duration <= 0 {
			return Result{}, err
		}
		p.account.res.Partial = true
	}
	r := p.account.close(duration)
	r.StartMono = p.clock.Start() + p.counted
	r.CPUTime = used
	return r, err
}

// processTime returns the processor time of the whole process, ns.
func processTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err) // cannot fail with a valid clock and pointer
	}
	return ts.Nano()
}

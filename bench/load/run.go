// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/niclane/niclane/bench/part/thread"
)

// settle is the delay of a step's first request, ns. After it, all threads are in their loops.
const settle = 2e6

// memoryLimit is the memory in bytes at which the garbage collector runs although it is off.
// crypto/tls leaves a few dozen bytes of garbage for each record, and reconnecting leaves more.
const memoryLimit = 2 << 30

// Run generates load as configured in c and returns the measurement. It fails on invalid
// parameters, when the server cannot be reached or filled, and when ctx ends early. In the last
// case it also returns the measurement until then, marked Partial. Errors after the start are
// counted in the Result.
//
// It turns off the garbage collector of the whole process while it runs. The process should run
// nothing else.
func Run(ctx context.Context, c Config) (Result, error) {
	c, addr, err := c.withDefaults()
	if err != nil {
		return Result{}, err
	}
	t, err := newTarget(&c, addr)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	r, err := run(ctx, &c, t)
	if err != nil {
		return r, fmt.Errorf("load: %w", err)
	}
	return r, nil
}

func run(ctx context.Context, c *Config, t *target) (Result, error) {
	var filled Work
	if c.Prefill {
		var err error
		if filled, err = prefill(ctx, t, c); err != nil {
			return Result{}, err
		}
	}
	// The Go scheduler needs a P for each generating thread, which never gives it back, and one
	// for all other goroutines.
	if n := c.Threads + 1; runtime.GOMAXPROCS(0) < n {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	}
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit))

	p := newPool(ctx, c, t)
	defer p.close()
	return c.each(ctx, filled, c.Threads, func(s Step) (Result, error) { return p.step(ctx, s) })
}

// each calls step for every step until one fails, and returns the combined result. filled is the
// work of the prefill, which is added to that of the first step.
func (c *Config) each(ctx context.Context, filled Work, threads int, step func(Step) (Result, error)) (Result, error) {
	var results []Result
	var err error
	for _, s := range c.steps() {
		var r Result
		r, err = step(s)
		if r.Latency != nil {
			if len(results) == 0 {
				r.Work.add(filled)
			}
			r.warn(c, threads)
			results = append(results, r)
		}
		if err != nil {
			break
		}
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	switch {
	case len(results) == 0:
		return Result{}, err
	case len(c.Steps) == 0:
		return results[0], err
	}
	r := follow(results)
	r.Partial = err != nil
	return r, err
}

// A pool is the workers of a run. Each is a goroutine with a thread of its own. The thread ends with
// the goroutine.
type pool struct {
	clock     thread.Clock
	workers   []chan func(*worker)
	cancelled atomic.Bool
	stop      func() bool
	wg        sync.WaitGroup
	errs      []error // errors of preparing
	target    *target
	cfg       *Config
}

// maxAhead limits how far Config.StartMono may be ahead, ns.
const maxAhead = 60e9

// first returns the time at which a step that is ready now begins.
func (c *Config) first(clock thread.Clock) int64 {
	return max(clock.Now()+settle, min(c.StartMono-clock.Start(), clock.Now()+maxAhead))
}

// newPool starts all workers and waits until they are connected. The first step returns their errors.
func newPool(ctx context.Context, c *Config, t *target) *pool {
	p := &pool{clock: thread.StartClock(), target: t, cfg: c, errs: make([]error, c.Threads)}
	p.stop = context.AfterFunc(ctx, func() { p.cancelled.Store(true) })
	connections := 0
	for _, s := range c.steps() {
		connections = max(connections, s.Connections)
	}
	var ready sync.WaitGroup
	for i := range c.Threads {
		do := make(chan func(*worker))
		p.workers = append(p.workers, do)
		ready.Add(1)
		p.wg.Go(func() {
			w := &worker{cfg: c, number: i, of: c.Threads, clock: p.clock, cancelled: &p.cancelled}
			defer w.close()
			p.errs[i] = w.prepare(ctx, t, connections)
			ready.Done()
			for f := range do {
				f(w)
			}
		})
	}
	ready.Wait()
	return p
}

// on runs f in all workers and waits until all have ended it.
func (p *pool) on(f func(i int, w *worker)) {
	var wg sync.WaitGroup
	for i, do := range p.workers {
		wg.Add(1)
		do <- func(w *worker) { defer wg.Done(); f(i, w) }
	}
	wg.Wait()
}

// step runs one step in all workers and merges their results.
func (p *pool) step(ctx context.Context, s Step) (Result, error) {
	if err := errors.Join(p.errs...); err != nil {
		return Result{}, err
	}
	results, errs := make([]Result, len(p.workers)), make([]error, len(p.workers))
	p.on(func(i int, w *worker) { errs[i] = w.renew(ctx, p.target) })
	if err := errors.Join(errs...); err != nil {
		return Result{}, err
	}
	first := p.cfg.first(p.clock)
	p.on(func(i int, w *worker) { results[i], errs[i] = w.step(s, first) })
	err := errors.Join(errs...)
	whole := results[:0]
	for _, r := range results {
		if r.Latency != nil {
			whole = append(whole, r)
		}
	}
	if len(whole) == 0 {
		return Result{}, err
	}
	r, merr := Merge(whole...)
	return r, errors.Join(err, merr)
}

func (p *pool) close() {
	p.stop()
	for _, do := range p.workers {
		close(do)
	}
	p.wg.Wait()
}

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"time"

	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab/virtual"
)

// settle is how long noise runs before the generators start: TCP needs a few round trips to
// reach its rate. In virtual time, see the method of this name.
const settle = 400 * time.Millisecond

// settle returns how long the noise runs before the generators start. In virtual time no other work
// of the machine disturbs TCP's start, and noise is what takes real time.
func (m *measurement) settle() time.Duration {
	if !virtual.Here() {
		return settle
	}
	rate, _ := m.on.link()
	return max(min(settle, settle*500e6/time.Duration(max(1, rate))), 20*time.Millisecond)
}

// patience is how long a generator may take beyond its warm-up, window and timeouts.
const patience = 30 * time.Second

// Measure measures one window. It runs the noise and the generators at the same time, and reads the
// counters of all parts before and after.
func (m *measurement) Measure(ctx context.Context, j Job) (result.Window, error) {
	w, err := m.measure(ctx, j)
	return w, m.because(err)
}

func (m *measurement) measure(ctx context.Context, j Job) (w result.Window, err error) {
	if err := m.alive(); err != nil {
		return w, err
	}
	ctx, done := m.watch(ctx)
	defer done()
	// The caches are read without noise: that takes longer than a short window.
	caches0, err := m.countCaches(ctx)
	if err != nil {
		return w, err
	}
	noise, err := m.startNoise(ctx, j.Noise, j.Window)
	defer func() {
		for _, n := range noise {
			n.abandon()
		}
	}()
	if err != nil {
		return w, err
	}
	if len(noise) > 0 {
		if err := wait(ctx, m.settle()); err != nil {
			return w, err
		}
	}
	counters0, err := m.count(ctx)
	if err != nil {
		return w, err
	}
	clocks, err := m.on.clocks(ctx)
	if err != nil {
		return w, err
	}
	// Power is measured from here on, over the same time as the work.
	drawn := m.power.start(ctx)
	defer drawn(context.WithoutCancel(ctx))
	arrived0, err := m.arrived(ctx)
	if err != nil {
		return w, err
	}
	machine, err := m.on.counting(ctx, m.processes())
	if err != nil {
		return w, err
	}
	queues := m.on.queueing(ctx)
	results, err := m.generate(ctx, j)
	var unread error
	if w.Hops, unread = queues(); err != nil {
		return w, err
	}
	if unread != nil {
		return w, unread
	}
	d, err := machine(ctx)
	if err != nil {
		return w, err
	}
	d.Tell(m.queues)
	w.Machine, w.Power = &d, drawn(ctx)
	m.tellInstances(&w)
	arrived1, err := m.arrived(ctx)
	if err != nil {
		return w, err
	}
	axis, err := clocks(ctx)
	if err != nil {
		return w, err
	}
	own := max(1, m.e.Load.Generators)
	if w.Load, err = merge(results[:own], axis); err != nil {
		return w, err
	}
	if err := m.probesOf(results[own:], axis, &w); err != nil {
		return w, err
	}
	for _, n := range noise {
		x, err := n.collect(ctx, w.Load, axis)
		if err != nil {
			return w, err
		}
		w.Noise = append(w.Noise, x)
	}
	caches1, err := m.countCaches(ctx)
	if err != nil {
		return w, err
	}
	caches1.since(caches0, &w)
	arrived1.since(arrived0, &w)
	if m.counts {
		counters1, err := m.count(ctx)
		if err != nil {
			return w, err
		}
		w.Counts = counted(counters0, counters1, w.Load.Work)
		if err := counters.Compare(counters0, counters1, w.Load.Work); err != nil {
			return w, unproven(err)
		}
	}
	return w, m.alive()
}

// watch returns a context that ends when the server, an additional process or a host is lost. Without
// it, a generator would wait for answers. The function that it returns ends the watch.
func (m *measurement) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	for _, t := range append(m.servers(), m.beside...) {
		go func() {
			select {
			case <-t.over():
				cancel(m.alive())
			case <-ended:
			}
		}()
	}
	go func() {
		select {
		case <-m.on.lost():
			cancel(m.on.gone())
		case <-ended:
			cancel(nil)
		}
	}()
	return ctx, func() { close(ended) }
}

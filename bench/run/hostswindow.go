// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/thread"
	"github.com/niclane/niclane/lab"
)

// Measure runs the noise, and beside it the generators.
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
	noise, err := m.startNoise(ctx, j.Noise)
	defer func() {
		for _, n := range noise {
			n.abandon()
		}
	}()
	if err != nil {
		return w, err
	}
	if len(noise) > 0 {
		if err := wait(ctx, settle); err != nil {
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
	// The same span for what was drawn and what was done with it.
	drawn := m.power.start(ctx)
	defer drawn(context.WithoutCancel(ctx))
	machine, err := m.on.counting(ctx, m.server)
	if err != nil {
		return w, err
	}
	results, err := m.generate(ctx, j)
	if err != nil {
		return w, err
	}
	d, err := machine(ctx)
	if err != nil {
		return w, err
	}
	d.Tell(m.queues)
	w.Machine, w.Power = &d, drawn(ctx)
	axis, err := clocks(ctx)
	if err != nil {
		return w, err
	}
	if w.Load, err = merge(results, axis); err != nil {
		return w, err
	}
	for _, n := range noise {
		x, err := n.collect(ctx, w.Load, axis)
		if err != nil {
			return w, err
		}
		w.Noise = append(w.Noise, x)
	}
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

// watch ends a window with the server or a host: a generator would wait for
// answers.
func (m *measurement) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	var server <-chan struct{}
	if m.server != nil {
		server = m.server.over()
	}
	go func() {
		select {
		case <-server:
			cancel(m.alive())
		case <-m.on.lost():
			cancel(m.on.gone())
		case <-ended:
			cancel(nil)
		}
	}()
	return ctx, func() { close(ended) }
}

// A measured is one generator's result, and where it ran.
type measured struct {
	host string
	load.Result
}

// lead is how far ahead the time is set at which generators of several hosts
// begin together: they have to be started and connected by then.
func lead(connections int) time.Duration {
	return min(250*time.Millisecond+time.Duration(connections)*500*time.Microsecond, 10*time.Second)
}

// generate runs the generators of a window.
func (m *measurement) generate(ctx context.Context, j Job) ([]measured, error) {
	configs, err := generators(m.f, m.address(), j)
	if err != nil {
		return nil, err
	}
	seats := m.on.seats(len(configs))
	start, err := m.together(ctx, seats, j)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lead(j.Connections)+time.Duration(j.Warmup+j.Window+2*m.e.Load.Timeout)+patience, errors.New("no end of the generator"))
	defer cancel()
	var running []task
	defer func() {
		for _, t := range running {
			_ = t.stop()
		}
	}()
	for i, c := range configs {
		at := seats[i]
		c.Setup, c.StartMono = at.Setup, start[at.host]
		if m.e.Server.Certificate && c.TLS != nil {
			c.TLS.CAFile, c.TLS.Insecure = filepath.Join(m.on.scratchOf(at.host), certificateFile), false
		}
		t, err := m.on.launch(ctx, launch{what: fmt.Sprintf("generator %d", i+1), host: at.host, part: "load", config: c,
			Place: experiment.Place{CPUs: c.CPUs, FIFO: c.FIFO}})
		if err != nil {
			return nil, err
		}
		running = append(running, t)
	}
	var results []measured
	for i, t := range running {
		r := measured{host: seats[i].host}
		if err := t.result(ctx, &r.Result); err != nil {
			return nil, err
		}
		if r.Partial { // somebody has asked it to end
			return nil, fmt.Errorf("%s was interrupted", t.name())
		}
		results = append(results, r)
	}
	return results, nil
}

// together is when the generators begin, on each host's own clock; none where
// one generator has nobody to wait for.
func (m *measurement) together(ctx context.Context, seats []seat, j Job) (map[string]int64, error) {
	if len(seats) < 2 {
		return nil, nil
	}
	clocks, err := m.on.clocks(ctx)
	if err != nil {
		return nil, err
	}
	axis, err := clocks(ctx)
	if err != nil {
		return nil, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, err
	}
	start := map[string]int64{}
	for _, s := range seats {
		start[s.host] = now.Nano() + int64(lead(j.Connections)) + axis.ahead[s.host]
	}
	return start, nil
}

// apart is how far generators may begin from each other without a word: 1 ms
// of a window of the series, which has 100.
const apart = 1e6

// merge brings the results onto the common time axis and makes one of them.
func merge(results []measured, x axis) (load.Result, error) {
	var all []load.Result
	var first, last, unsure int64
	for i, r := range results {
		shift(&r.Result, x.ahead[r.host])
		all = append(all, r.Result)
		if i == 0 {
			first, last = r.StartMono, r.StartMono
		}
		first, last = min(first, r.StartMono), max(last, r.StartMono)
		unsure = max(unsure, x.uncertainty[r.host])
	}
	sum, err := load.Merge(all...)
	if err != nil {
		return sum, err
	}
	if last-first > apart {
		sum.Warnings = append(sum.Warnings, fmt.Sprintf("the generators began %v apart: windows of the series mix what is that far apart", time.Duration(last-first).Round(time.Microsecond)))
	}
	if unsure > apart {
		sum.Warnings = append(sum.Warnings, fmt.Sprintf("the hosts' clocks are known to ± %v only: noise and stalls may stand that far off on the time axis", time.Duration(unsure).Round(time.Microsecond)))
	}
	return sum, nil
}

// shift takes from all times of a result what the host's clock is ahead.
func shift(r *load.Result, ahead int64) {
	r.StartMono -= ahead
	for i := range r.Stalls {
		r.Stalls[i].AtMono -= ahead
	}
	for i := range r.Steps {
		shift(&r.Steps[i], ahead)
	}
}

// A flow is one noise, both ends.
type flow struct {
	direction        string
	asked            int64
	from, to         string
	sender, receiver task
}

func (m *measurement) startNoise(ctx context.Context, all []experiment.Noise) ([]flow, error) {
	var out []flow
	for i, n := range all {
		x := flow{direction: n.Direction, from: lab.Noise, to: lab.SUT}
		if n.Direction == experiment.FromSUT {
			x.from, x.to = x.to, x.from
		}
		rate, mtu := m.on.link()
		send, receive := noiseEnds(n, net.JoinHostPort(m.on.addressOf(x.to), strconv.Itoa(n.Port)), rate, mtu)
		send.Setup, receive.Setup = m.noiseThread(x.from), m.noiseThread(x.to)
		x.asked = send.Rate
		// Both run until they are asked to end, so that no window outlasts its
		// noise.
		var err error
		what := fmt.Sprintf("noise %d %s", i+1, n.Direction)
		if x.receiver, err = m.on.launch(ctx, noiseEnd(what+", receiver", x.to, receive)); err != nil {
			return out, err
		}
		if x.sender, err = m.on.launch(ctx, noiseEnd(what+", sender", x.from, send)); err != nil {
			return out, errors.Join(err, x.receiver.stop())
		}
		out = append(out, x)
	}
	return out, nil
}

func noiseEnd(what, host string, c noise.Config) launch {
	return launch{what: what, host: host, part: "noise", config: c, Place: experiment.Place{CPUs: c.CPUs, FIFO: c.FIFO}}
}

func (m *measurement) noiseThread(host string) thread.Setup {
	p := m.e.Placement.Noise
	if host == lab.SUT {
		p = m.e.Placement.SUTNoise
	}
	return thread.Setup{CPUs: p.CPUs, FIFO: p.FIFO}
}

// collect ends the noise and says what arrived while latency was counted.
func (x *flow) collect(ctx context.Context, l load.Result, a axis) (result.Noise, error) {
	n := result.Noise{Direction: x.direction, Asked: x.asked}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("no end of the noise"))
	defer cancel()
	if err := x.sender.ended(); err != nil {
		return n, err
	}
	if err := x.sender.stop(); err != nil {
		return n, err
	}
	if err := x.sender.result(ctx, &n.Sender); err != nil {
		return n, err
	}
	// Without senders the receiver ends by itself.
	if err := x.receiver.result(ctx, &n.Receiver); err != nil {
		return n, err
	}
	n.Sender.StartMono -= a.ahead[x.from]
	n.Receiver.StartMono -= a.ahead[x.to]
	var ok bool
	if n.Achieved, ok = n.Receiver.Over(l.StartMono, l.StartMono+l.Duration); !ok {
		return n, fmt.Errorf("%s: nothing in the time in which latency was counted", x.receiver.name())
	}
	return n, nil
}

// abandon ends what has not ended.
func (x *flow) abandon() {
	_ = x.sender.stop()
	_ = x.receiver.stop()
}

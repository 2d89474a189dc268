// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/thread"
	"github.com/niclane/niclane/lab"
)

// settle is how long noise runs before the generators start: TCP needs a few
// round trips to reach its rate.
const settle = 400 * time.Millisecond

// patience with a generator beyond its warm-up, window and timeouts.
const patience = 30 * time.Second

// Measure runs the noise, and beside it the generators.
func (s *labSite) Measure(ctx context.Context, j Job) (w result.Window, err error) {
	// A window ends with the server: a generator would wait for answers.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-s.server.done:
			cancel(s.server.ended())
		case <-ended:
		}
	}()
	if err := s.alive(); err != nil {
		return w, err
	}
	noise, err := s.startNoise(ctx, j.Noise)
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
	counters0, err := s.count(ctx)
	if err != nil {
		return w, err
	}
	// The same span for what was drawn and what was done with it.
	drawn := s.power.start(ctx)
	defer drawn(context.WithoutCancel(ctx))
	before, err := s.snapshot()
	if err != nil {
		return w, err
	}
	hops := s.sampleHops(ctx)
	w.Load, err = s.generate(ctx, j)
	var unread error
	if w.Hops, unread = hops.stop(); err != nil {
		return w, err
	}
	if unread != nil {
		return w, unread
	}
	after, err := s.snapshot()
	if err != nil {
		return w, err
	}
	d, err := after.Since(before)
	if err != nil {
		return w, err
	}
	d.Tell(s.queues)
	w.Machine, w.Power = &d, drawn(ctx)
	for _, n := range noise {
		x, err := n.collect(ctx, w.Load)
		if err != nil {
			return w, err
		}
		w.Noise = append(w.Noise, x)
	}
	if s.counts {
		counters1, err := s.count(ctx)
		if err != nil {
			return w, err
		}
		w.Counts = counted(counters0, counters1, w.Load.Work)
		if err := counters.Compare(counters0, counters1, w.Load.Work); err != nil {
			return w, unproven(err)
		}
	}
	return w, s.alive()
}

// snapshot of the SUT's counters.
func (s *labSite) snapshot() (snap *machine.Snapshot, err error) {
	err = s.lab.Do(lab.SUT, func() error {
		snap, err = machine.Take(machine.Config{
			Processes: map[string]int{"server": s.server.cmd.Process.Pid}, Device: lab.Port, Polls: s.polls,
		})
		return err
	})
	if err != nil {
		return nil, s.because(fmt.Errorf("the machine's counters: %w", err))
	}
	return snap, nil
}

// generate runs the generators of a window.
func (s *labSite) generate(ctx context.Context, j Job) (load.Result, error) {
	configs, err := generators(s.f, s.address(), j)
	if err != nil {
		return load.Result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(j.Warmup+j.Window+2*s.e.Load.Timeout)+patience, errors.New("no end of the generator"))
	defer cancel()
	var running []*process
	defer func() {
		for _, p := range running {
			_ = p.stop()
		}
	}()
	for i, c := range configs {
		if s.e.Server.Certificate && c.TLS != nil {
			c.TLS.CAFile, c.TLS.Insecure = filepath.Join(s.scratch(), certificateFile), false
		}
		// SCHED_FIFO takes the generator's thread by itself.
		p, err := start(fmt.Sprintf("generator %d", i+1), s.command(ctx, lab.Client, lab.Options{CPUs: c.CPUs}, s.niclane, "internal-load"), c)
		if err != nil {
			return load.Result{}, err
		}
		running = append(running, p)
	}
	var results []load.Result
	for _, p := range running {
		var r load.Result
		if err := p.result(ctx, &r); err != nil {
			return load.Result{}, s.because(err)
		}
		if r.Partial { // somebody has asked it to end
			return load.Result{}, s.because(fmt.Errorf("%s was interrupted", p.what))
		}
		results = append(results, r)
	}
	return load.Merge(results...)
}

// A stream is one noise, both ends.
type stream struct {
	direction        string
	asked            int64
	sender, receiver *process
}

func (s *labSite) startNoise(ctx context.Context, all []experiment.Noise) ([]stream, error) {
	var out []stream
	for i, n := range all {
		from, to := lab.Noise, lab.SUT
		if n.Direction == experiment.FromSUT {
			from, to = to, from
		}
		send, receive := noiseEnds(n, s.onHost(to, n.Port), int64(s.lab.Config.LinkRate), s.lab.Config.MTU)
		send.Setup, receive.Setup = s.noiseThread(from), s.noiseThread(to)
		x := stream{direction: n.Direction, asked: send.Rate}
		// Both run until they are asked to end, so that no window outlasts its
		// noise.
		var err error
		what := fmt.Sprintf("noise %d %s", i+1, n.Direction)
		if x.receiver, err = start(what+", receiver", s.command(ctx, to, lab.Options{CPUs: receive.CPUs}, s.niclane, "internal-noise"), receive); err != nil {
			return out, err
		}
		if x.sender, err = start(what+", sender", s.command(ctx, from, lab.Options{CPUs: send.CPUs}, s.niclane, "internal-noise"), send); err != nil {
			return out, errors.Join(err, x.receiver.stop())
		}
		out = append(out, x)
	}
	return out, nil
}

func (s *labSite) noiseThread(host string) thread.Setup {
	p := s.e.Placement.Noise
	if host == lab.SUT {
		p = s.e.Placement.SUTNoise
	}
	return thread.Setup{CPUs: p.CPUs, FIFO: p.FIFO}
}

// collect ends the noise and says what arrived while latency was counted.
func (x *stream) collect(ctx context.Context, l load.Result) (result.Noise, error) {
	n := result.Noise{Direction: x.direction, Asked: x.asked}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("no end of the noise"))
	defer cancel()
	// Who has ended by itself is the one to name: the other ends for that.
	if err := cmp.Or(x.receiver.ended(), x.sender.ended()); err != nil {
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
	var ok bool
	if n.Achieved, ok = n.Receiver.Over(l.StartMono, l.StartMono+l.Duration); !ok {
		return n, fmt.Errorf("%s: nothing in the time in which latency was counted", x.receiver.what)
	}
	return n, nil
}

// abandon ends what has not ended.
func (x *stream) abandon() {
	_ = x.sender.stop()
	_ = x.receiver.stop()
}

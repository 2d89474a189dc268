// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"context"
	"fmt"
	"time"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/report"
)

// Ports of the server and of the noise receivers.
const (
	serverPort   = 11211
	noisePortIn  = 5001 // on the server's host
	noisePortOut = 5002 // on the noise host
)

// Directions of the noise, as the result names them.
const (
	toSUT   = "to the SUT"
	fromSUT = "from the SUT"
)

// A window is one repeat of one variant.
type window struct {
	variant string
	repeat  int
	share   float64 // of the noise, 0: none
	length  time.Duration
}

// settle is how long noise runs before the generator's warm-up, and overhang
// how long after its end: TCP needs a few round trips to reach its rate, and a
// window must not outlast its noise.
const (
	settle   = 400 * time.Millisecond
	overhang = 300 * time.Millisecond
)

// measure runs one window. The lane has been set up, or taken away, before.
func (m *measurement) measure(ctx context.Context, w window) (report.Run, error) {
	run := report.Run{Variant: w.variant, Repeat: w.repeat}
	var streams []stream
	if w.share > 0 {
		var err error
		if streams, err = m.startNoise(ctx, w); err != nil {
			return run, err
		}
		defer func() {
			for _, s := range streams {
				s.abandon()
			}
		}()
		if err := wait(ctx, settle); err != nil {
			return run, err
		}
	}
	cfg := m.loadConfig(w)
	before, err := cpuTimes(m.pids())
	if err != nil {
		return run, err
	}
	began := time.Now()
	hops := m.lab.sample(ctx)
	gen, err := start("generator", m.lab.command(ctx, "client", generatorPlace, m.o.Niclane, "internal-load"), cfg)
	if err != nil {
		_, _ = hops.stop()
		return run, err
	}
	err = gen.result(m.o.Warmup+w.length+20*time.Second, &run.Load)
	var hopErr error
	if run.Hops, hopErr = hops.stop(); hopErr != nil {
		m.warnf("repeat %d, %s: %v", w.repeat+1, w.variant, hopErr)
	}
	after, cpuErr := cpuTimes(m.pids())
	over := time.Since(began)
	if err != nil {
		return run, err
	}
	if cpuErr != nil {
		return run, cpuErr
	}
	run.CPU = cpuUse(before, after, m.cpuOrder(), int64(over))
	for _, s := range streams {
		n, err := s.collect()
		if err != nil {
			return run, err
		}
		run.Noise = append(run.Noise, n)
	}
	return run, m.server.running()
}

func (m *measurement) loadConfig(w window) load.Config {
	c := load.Config{
		Address: m.lab.address("sut", serverPort), Rate: m.o.Rate, Arrivals: load.Poisson,
		Seed: uint64(w.repeat + 1), Connections: m.o.Connections, Keys: 10_000, KeyBytes: 16, ValueBytes: 64,
		Prefill: !m.prefilled, Warmup: int64(m.o.Warmup), Duration: int64(w.length),
	}
	c.CPUs, c.FIFO = generatorPlace.cpus, fifoPriority
	m.prefilled = true
	return c
}

// A stream is the noise of one direction.
type stream struct {
	direction        string
	sender, receiver *worker
}

func (m *measurement) startNoise(ctx context.Context, w window) ([]stream, error) {
	length := settle + m.o.Warmup + w.length + overhang
	rate := noise.PayloadRate(int64(w.share*float64(m.lab.linkRate())), m.lab.mtu(), false)
	var streams []stream
	for _, s := range []struct {
		direction, from, to string
		port, flows         int
	}{{toSUT, "noise", "sut", noisePortIn, m.o.FlowsIn}, {fromSUT, "sut", "noise", noisePortOut, m.o.FlowsOut}} {
		address := m.lab.address(s.to, s.port)
		send := noise.Config{Role: noise.Send, Address: address, Flows: s.flows, Rate: rate, Duration: int64(length)}
		receive := noise.Config{Role: noise.Receive, Address: address, Flows: s.flows, Duration: int64(length + 2*time.Second)}
		send.CPUs, receive.CPUs = placeOf(s.from).cpus, placeOf(s.to).cpus
		m.noteNoise(send)
		rx, err := start("noise receiver "+s.direction, m.lab.command(ctx, s.to, placeOf(s.to), m.o.Niclane, "internal-noise"), receive)
		if err != nil {
			return streams, err
		}
		tx, err := start("noise sender "+s.direction, m.lab.command(ctx, s.from, placeOf(s.from), m.o.Niclane, "internal-noise"), send)
		streams = append(streams, stream{s.direction, tx, rx})
		if err != nil {
			return streams[:len(streams)-1], fmt.Errorf("%w (%v)", err, rx.stop())
		}
	}
	return streams, nil
}

// collect waits for both ends.
func (s *stream) collect() (report.NoiseRun, error) {
	n := report.NoiseRun{Direction: s.direction}
	if err := s.sender.result(20*time.Second, &n.Sender); err != nil {
		return n, err
	}
	err := s.receiver.result(20*time.Second, &n.Receiver)
	return n, err
}

// abandon ends what has not ended; it is for failures.
func (s *stream) abandon() {
	_ = s.sender.stop()
	_ = s.receiver.stop()
}

// wait lets time pass, which is what a settling time is.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

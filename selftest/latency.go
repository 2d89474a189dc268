// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/stats"
)

// A LatencyConfig configures the latency measurement.
type LatencyConfig struct {
	// Rounds is the number of rounds. Each round measures without and with the lane. 0: no
	// measurement.
	Rounds int
	// Window is the length of each measurement.
	Window time.Duration
	// Rate is in requests per second.
	Rate float64
	// Noise is bulk traffic toward this host, in bit/s; 0: none.
	Noise int64
}

// noiseFlows is the number of flows that share the noise.
const noiseFlows = 4

// percentiles lists the percentiles to report. A percentile is left out if the sample is too small
// for it.
var percentiles = []float64{50, 90, 99, 99.9}

// latency measures the latency of the lane's port. Each round has two windows, one without and one
// with the lane. Their order alternates.
func (r *runner) latency(ctx context.Context) error {
	k := kinds(r.target.Ends, r.target.Port)[0]
	l := &Latency{
		Lanes: r.target.lanes(k, nil, ""), Rate: r.c.Latency.Rate, Connections: connections,
		Window: int64(r.c.Latency.Window), Noise: r.c.Latency.Noise,
	}
	if p, refused, err := r.m.Plan(ctx, l.Lanes); err != nil || p == nil {
		r.r.Warnings = append(r.r.Warnings, "latency is not measured: the planner refuses the lane")
		return cmp.Or(err, errorOf(refused, r.r))
	}
	r.r.Latency = l
	var without, with []load.Result
	for round := range r.c.Latency.Rounds {
		var pair [2]load.Result
		for i := range 2 {
			variant := (round + i) % 2
			var err error
			if pair[variant], err = r.window(ctx, k, l, variant == 1, uint64(round+1)); err != nil {
				return fmt.Errorf("latency, round %d: %w", round+1, err)
			}
		}
		without, with = append(without, pair[0]), append(with, pair[1])
		l.Rounds++
		fmt.Fprintf(r.c.Progress, "latency: round %d of %d\n", round+1, r.c.Latency.Rounds)
		l.summarize(without, with)
	}
	return nil
}

// errorOf records the reasons why the planner refused the lane as warnings. It returns nil, because
// a refusal is no error.
func errorOf(refused []string, r *Record) error {
	r.Warnings = append(r.Warnings, refused...)
	return nil
}

// window makes one measurement, with or without the lane.
func (r *runner) window(ctx context.Context, k kind, l *Latency, lane bool, seed uint64) (out load.Result, err error) {
	if lane {
		if err := r.m.Apply(ctx, l.Lanes, r.c.Within); err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, r.m.Rollback(context.WithoutCancel(ctx))) }()
		if _, _, err := r.settle(ctx, k, nil, time.Now()); err != nil {
			return out, err
		}
	}
	end, err := r.noise(ctx, k, l.Noise)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, end()) }()
	c := request(netip.AddrPortFrom(k.end.Own, uint16(r.target.Port)))
	c.Rate, c.Arrivals, c.Seed, c.Timeout = l.Rate, load.Poisson, seed, 0
	c.Warmup, c.Duration = int64(200*time.Millisecond), l.Window
	t, err := r.peer.Start(ctx, "requests", partLoad, c)
	if err != nil {
		return out, err
	}
	wait, cancel := context.WithTimeoutCause(ctx, time.Duration(l.Window)+patience, errors.New("it did not end "+
		"in time"))
	defer cancel()
	if err := t.Result(wait, &out); err != nil {
		return out, errors.Join(err, t.Stop(context.WithoutCancel(ctx)))
	}
	return out, nil
}

// noise sends bulk traffic to port Port+2, which is not in the lane. It returns a function that
// ends the traffic.
func (r *runner) noise(ctx context.Context, k kind, rate int64) (func() error, error) {
	if rate == 0 {
		return func() error { return nil }, nil
	}
	c := noise.Config{Role: noise.Receive, Flows: noiseFlows,
		Address: netip.AddrPortFrom(k.end.Own, uint16(r.target.Port+2)).String()}
	receiver, err := r.own.Start(ctx, "noise, receiver", partNoise, c)
	if err != nil {
		return nil, err
	}
	c.Role, c.Rate = noise.Send, noise.PayloadRate(rate, cmp.Or(r.r.Device.MTU, 1500), k.end.Own.Is6())
	sender, err := r.peer.Start(ctx, "noise, sender", partNoise, c)
	if err != nil {
		return nil, errors.Join(err, receiver.Stop(ctx))
	}
	end := func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(sender.Stop(ctx), receiver.Stop(ctx))
	}
	// TCP needs a few round trips to reach its rate.
	if err := sleep(ctx, 400*time.Millisecond); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// summarize computes the percentiles from all measurements made so far.
func (l *Latency) summarize(without, with []load.Result) {
	a, b := series(without), series(with)
	l.Percentiles, l.Warnings = nil, warnings(without, with)
	for _, p := range percentiles {
		x := Percentile{P: p}
		var err error
		if x.Without, err = estimate(a, p); err != nil {
			x.Missing = append(x.Missing, "without: "+err.Error())
		}
		if x.With, err = estimate(b, p); err != nil {
			x.Missing = append(x.Missing, "with: "+err.Error())
		}
		if x.Ratio, err = ratio(without, with, p); err != nil {
			x.Missing = append(x.Missing, "ratio: "+err.Error())
		}
		l.Percentiles = append(l.Percentiles, x)
	}
}

func series(rs []load.Result) (out []*stats.Series) {
	for _, r := range rs {
		out = append(out, r.Series)
	}
	return out
}

func estimate(s []*stats.Series, p float64) (*stats.Estimate, error) {
	e, err := stats.NewSample(s...).Interval(p)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// ratio computes the ratio of with to without from the rounds. If every window has enough samples,
// it compares window by window; otherwise it compares all rounds together.
func ratio(without, with []load.Result, p float64) (*stats.Ratio, error) {
	var pairs []stats.Pair
	var whole []stats.SeriesPair
	for i := range without {
		whole = append(whole, stats.SeriesPair{Variant: with[i].Series, Base: without[i].Series})
		a, err1 := stats.Percentile(without[i].Latency, p)
		b, err2 := stats.Percentile(with[i].Latency, p)
		if err1 == nil && err2 == nil {
			pairs = append(pairs, stats.Pair{Variant: b, Base: a})
		}
	}
	var r stats.Ratio
	var err error
	if len(pairs) == len(without) {
		r, err = stats.PairedRatio(pairs)
	} else {
		r, err = stats.PooledRatio(whole, p, 1)
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// warnings returns the generators' warnings. It returns each text once.
func warnings(lists ...[]load.Result) (out []string) {
	seen := map[string]bool{}
	for i, rs := range lists {
		for round, r := range rs {
			for _, w := range r.Warnings {
				text := fmt.Sprintf("%s the lane, round %d: %s", []string{"without", "with"}[i], round+1, w)
				if !seen[text] {
					seen[text] = true
					out = append(out, text)
				}
			}
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/live/waits"
)

// After a switch, settle waits until each service in a lane has answered a request, at most settleMost
// or ten times Config.Settle, whichever is longer. It looks every settleStep.
const (
	settleMost = 10 * time.Second
	settleStep = 100 * time.Millisecond
)

// SettleLimit returns the longest time of settling.
func SettleLimit(settle time.Duration) time.Duration { return max(settleMost, 10*settle) }

// window switches to a variant, if another one is in force, and measures one window of each service.
// It adds the windows to the result only if nothing disturbed them.
func (x *runner) window(ctx context.Context, round, variant int) error {
	var settled time.Duration
	if variant != x.now || x.windows == 0 {
		x.progress(variant, true)
		if variant != x.now {
			if err := x.Switcher.Switch(ctx, variant); err != nil {
				return fmt.Errorf("%s: %w", x.Variants[variant].Name, err)
			}
			x.now = variant
		}
		var err error
		if settled, err = x.settle(ctx, variant); err != nil {
			return err
		}
	}
	x.progress(variant, false)
	before, first, err := x.read()
	if err == nil {
		err = x.Clock.Sleep(ctx, x.Window)
	}
	if err != nil {
		return err
	}
	after, last, err := x.read()
	if err != nil {
		return err
	}
	if err := x.undisturbed(ctx, after); err != nil {
		return err
	}
	d := after.Sub(before)
	share := followed(d)
	windows := make([]result.Window, 0, len(x.Services))
	for point, s := range x.Services {
		m := find(d, s.Name)
		if m == nil || m.Requests == 0 && !s.Neighbour {
			return x.silence(s, variant, d.Duration, share, "with")
		}
		w := x.convert(m, d, share)
		if h := histogram(last[s.Name].Sub(first[s.Name])); h.Count() > 0 {
			w.Live.Waits = append(w.Live.Waits, result.LiveWait{Stage: result.RoundTrip, Latency: h})
		}
		w.Variant, w.Point, w.Repeat, w.Live.Settled = x.Variants[variant].Name, point, round, int64(settled)
		windows = append(windows, w)
	}
	x.r.Windows = append(x.r.Windows, windows...)
	x.windows++
	return nil
}

// read reads both meters.
func (x *runner) read() (s waits.Snapshot, times map[string]*waits.Histogram, err error) {
	if s, err = x.Meter.Snapshot(); err == nil {
		times, err = x.RoundTrips.Times()
	}
	return s, times, err
}

// undisturbed returns an error if the window that has just ended must not count.
func (x *runner) undisturbed(ctx context.Context, now waits.Snapshot) error {
	if err := x.Switcher.Check(ctx); err != nil {
		return err
	}
	for _, s := range x.Services {
		m, who := find(now, s.Name), x.who[s.Name]
		// Workers come and go. After a restart, all processes are others.
		stays := func(pid int) bool { return slices.Contains(m.Processes, pid) }
		if m != nil && len(who) > 0 && !slices.ContainsFunc(who, stays) {
			return fmt.Errorf("%s was %w during the trial: none of its processes (%s) is left, so its windows before "+
				"and after are not comparable", s.Name, ErrRestarted, strings.Trim(fmt.Sprint(who), "[]"))
		}
	}
	return nil
}

// settle waits after a switch until at least Config.Settle is over and each service in a lane has
// answered a request that began after the switch.
func (x *runner) settle(ctx context.Context, variant int) (time.Duration, error) {
	began := x.Clock.Now()
	start, err := x.Meter.Snapshot()
	if err != nil {
		return 0, err
	}
	if err := x.Clock.Sleep(ctx, x.Settle); err != nil {
		return 0, err
	}
	for {
		now, err := x.Meter.Snapshot()
		if err != nil {
			return 0, err
		}
		var silent Service
		for _, s := range x.Services {
			if m := find(now.Sub(start), s.Name); (m == nil || m.Requests == 0) && !s.Neighbour {
				silent = s
			}
		}
		took := x.Clock.Now().Sub(began)
		if silent.Name == "" {
			return took, nil
		}
		if took >= SettleLimit(x.Settle) {
			// A restart explains the silence better.
			if err := x.undisturbed(ctx, now); err != nil {
				return 0, err
			}
			return 0, x.silence(silent, variant, took, followed(now.Sub(start)), "after the switch to")
		}
		if err := x.Clock.Sleep(ctx, settleStep); err != nil {
			return 0, err
		}
	}
}

// followed returns the share of the time in which requests were followed. It is at least 0.001.
func followed(d waits.Snapshot) float64 {
	return max(float64(d.Followed)/float64(max(d.Duration, 1)), 1e-3)
}

// all extrapolates a number that was counted while this share was followed.
func all(n uint64, share float64) int64 { return int64(math.Round(float64(n) / share)) }

// convert returns the window of one service. d is the difference of snapshots that m is from.
func (x *runner) convert(m *waits.Service, d waits.Snapshot, share float64) result.Window {
	n := all(max(m.Seen, m.Requests), share)
	rate := float64(n) / d.Duration.Seconds()
	w := result.Window{Purpose: result.Repeat,
		Load: load.Result{Mode: result.Live, Duration: int64(d.Duration), Intended: n, Sent: n, Completed: n, Hits: n,
			OfferedRate: rate, AchievedRate: rate, Retransmits: m.Retransmits, Work: load.Work{Gets: n}},
		Live: &result.LiveWindow{Followed: int64(m.Requests), Lost: int64(d.Lost),
			Retransmits: all(m.Retransmits, share), Drops: all(m.Drops, share), CPU: int64(m.CPU),
			Waits: []result.LiveWait{}},
	}
	for stage := range waits.Stages {
		h := histogram(m.Waits[stage])
		switch {
		case stage.String() == x.r.Trial.Measure:
			w.Load.Latency = h
		case h.Count() > 0:
			w.Live.Waits = append(w.Live.Waits, result.LiveWait{Stage: stage.String(), Latency: h})
		}
	}
	if d.Lost > 0 && d.Lost*100 > uint64(n) {
		w.Warnings = append(w.Warnings, fmt.Sprintf("%d requests could not be followed: the programs had no room",
			d.Lost))
	}
	return w
}

// histogram converts a histogram. The values of a bucket are spread over it evenly, so that a percentile
// is not rounded to one of few values.
func histogram(h *waits.Histogram) *stats.Histogram {
	return stats.Rising(func(yield func(int64) bool) {
		h.Each(func(low, high int64, n uint64) bool {
			for i := range n {
				if !yield(low + int64((float64(i)+0.5)/float64(n)*float64(high-low+1))) {
					return false
				}
			}
			return true
		})
	})
}

func find(s waits.Snapshot, name string) *waits.Service {
	for i := range s.Services {
		if s.Services[i].Name == name {
			return &s.Services[i]
		}
	}
	return nil
}

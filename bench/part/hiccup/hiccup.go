// SPDX-License-Identifier: Apache-2.0

// Package hiccup measures how late the host wakes a thread that only sleeps. A shorter latency than
// that cannot be measured.
//
// On each CPU a pinned thread sleeps to absolute deadlines and records how late it woke, as
// cyclictest does. The package reports possible causes (steal time, load, autogroup, busy
// processes), but does not determine the cause. It changes nothing on the host.
package hiccup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/stats"
)

// Config is the configuration of Run. Durations are in ns.
type Config struct {
	// CPUs to measure; empty means all that this process may use.
	CPUs []int `json:"cpus,omitempty"`
	// Duration is at most 60 s: Run takes a snapshot and is no monitor.
	Duration int64 `json:"durationNs"`
	// Interval between deadlines (default 500 us, at least 10 us).
	Interval int64 `json:"intervalNs,omitempty"`
	// FIFO is the SCHED_FIFO priority of the threads, 0 for the inherited class. With the
	// inherited class, delays by other ordinary threads are included.
	FIFO int `json:"fifoPriority,omitempty"`
}

// CPU is the result of one processor.
type CPU struct {
	CPU int `json:"cpu"`
	// Late has the time from each deadline to the return from the sleep. Deadlines that passed
	// during a sleep are recorded too.
	Late *stats.Histogram `json:"late"`
	// Steal, Busy and Total are the growth of /proc/stat in the window, ns (counted in the
	// kernel's ticks). Busy is all time except idle, iowait and steal.
	Steal int64 `json:"stealNs"`
	Busy  int64 `json:"busyNs"`
	Total int64 `json:"totalNs"`
}

// Result is what Run measured.
type Result struct {
	StartMono int64 `json:"startMonoNs"`
	Duration  int64 `json:"durationNs"`
	CPUs      []CPU `json:"cpus"`
	Host      Host  `json:"host"`
}

// Run measures for c.Duration. If ctx ends first, that is an error.
func Run(ctx context.Context, c Config) (Result, error) {
	c.Interval = cmp.Or(c.Interval, 500e3)
	var errs []error
	if c.Duration <= 0 || c.Duration > 60e9 {
		errs = append(errs, fmt.Errorf("durationNs %d: want 1 to 60000000000", c.Duration))
	}
	if c.Interval < 10e3 {
		errs = append(errs, fmt.Errorf("intervalNs %d: want at least 10000", c.Interval))
	}
	if len(c.CPUs) == 0 {
		var err error
		if c.CPUs, err = thread.Allowed(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return Result{}, fmt.Errorf("hiccup: %w", errors.Join(errs...))
	}
	before, err := readHost()
	if err != nil {
		return Result{}, fmt.Errorf("hiccup: %w", err)
	}
	var stop atomic.Bool
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	clock := thread.StartClock()
	res := Result{StartMono: clock.Start(), CPUs: make([]CPU, len(c.CPUs))}
	var wg sync.WaitGroup
	failed := make([]error, len(c.CPUs))
	for i, cpu := range c.CPUs {
		res.CPUs[i] = CPU{CPU: cpu, Late: stats.NewHistogram()}
		wg.Go(func() { failed[i] = measure(c, cpu, res.CPUs[i].Late, &stop) })
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		return Result{}, fmt.Errorf("hiccup: %w", err)
	}
	if err := context.Cause(ctx); err != nil {
		return Result{}, fmt.Errorf("hiccup: %w", err)
	}
	res.Duration = clock.Now()
	after, err := readHost()
	if err != nil {
		return Result{}, fmt.Errorf("hiccup: %w", err)
	}
	res.Host = after.since(before)
	for i := range res.CPUs {
		d := after.cpus[res.CPUs[i].CPU].minus(before.cpus[res.CPUs[i].CPU])
		res.CPUs[i].Steal, res.CPUs[i].Busy, res.CPUs[i].Total = d.steal, d.busy, d.total
	}
	return res, nil
}

// measure measures one processor. It locks its goroutine to a thread, which ends with the
// goroutine.
func measure(c Config, cpu int, late *stats.Histogram, stop *atomic.Bool) error {
	if err := (thread.Setup{CPUs: []int{cpu}, FIFO: c.FIFO}).Lock(); err != nil {
		return err
	}
	if err := thread.BlockPreemption(); err != nil {
		return fmt.Errorf("block SIGURG: %w", err)
	}
	clock := thread.StartClock()
	for deadline := c.Interval; deadline < c.Duration && !stop.Load(); deadline += c.Interval {
		ts := unix.NsecToTimespec(clock.Start() + deadline)
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
		}
		// A thread that slept through several deadlines records each: the next sleeps return at
		// once.
		late.Record(max(clock.Now()-deadline, 0))
	}
	return nil
}

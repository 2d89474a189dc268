// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/wait"
)

const (
	// slice is for how long the programs are attached at a time.
	slice = 100 * time.Millisecond
	// firstSlices are the slices after which the pace is chosen: the first one finds the services'
	// processes, the next ones their processor time and the programs' cost without and with threads.
	firstSlices = 4
	// gaugeEvery is how often the kernel counts the programs' time, in slices. Counting makes each run
	// some tens of nanoseconds longer.
	gaugeEvery = 6
	// idleCost is the share of one processor below which the programs are never too expensive,
	// although the services are idle.
	idleCost = 0.001
	// leastFollow is the smallest share of the time in which requests are followed.
	leastFollow = 0.02
	// refresh is how often the limits of slow requests are set; in the first firstRefresh, after each
	// slice.
	refresh      = time.Second
	firstRefresh = 3 * time.Second
)

// A pace is the shares of the time in which the programs are attached, and in which they also remember
// which threads the processors run. The second is part of the first.
type pace struct{ follow, threads float64 }

// A meter knows the processor time of the services' processes and of the programs, and chooses the
// pace. The caller serializes its use.
type meter struct {
	maxCost float64
	fixed   bool
	pace    pace
	// own is the programs' time, runs the number of their runs.
	own     time.Duration
	runs    float64
	rates   [2]rate // while attached, without and with threads
	unknown string  // why own is not known
	// followed is how long the programs were attached before on; on is when they were attached last, zero
	// while they are not.
	followed time.Duration
	on       time.Time
	clocks   map[wait.Reader]*clock
	busy     time.Duration // the services' processor time at the time at
	at       time.Time
}

// A rate is a cost in each second in which the programs are attached.
type rate struct {
	cpu  float64 // ns
	runs float64
}

// A clock is the processor time of a process since it was first seen.
type clock struct {
	first, last time.Duration
	ended       bool
}

func newMeter(o Options) meter {
	m := meter{maxCost: o.MaxCost, fixed: o.FixedRate, pace: pace{1, 1}, at: time.Now(),
		clocks: map[wait.Reader]*clock{}}
	if o.FixedRate {
		m.pace = pace{o.SampleRate, o.SampleRate}
	}
	return m
}

// processes updates the processor time of the services' processes.
func (m *meter) processes(p *wait.Programs) error {
	readers, err := p.Readers()
	if err != nil {
		return err
	}
	for _, r := range readers {
		c := m.clocks[r]
		if c != nil && c.ended {
			continue
		}
		// The process's clock has the time of all its threads, also of those that ended
		// (clock_getcpuclockid(3), CPUCLOCK_SCHED in include/linux/posix-timers.h).
		var t unix.Timespec
		err := unix.ClockGettime(^int32(r.PID)<<3|2, &t)
		if c == nil {
			c = &clock{first: time.Duration(t.Nano())}
			m.clocks[r] = c
		}
		c.ended = err != nil || time.Duration(t.Nano()) < c.last
		if !c.ended {
			c.last = time.Duration(t.Nano())
		}
	}
	return nil
}

// service returns the processor time of a service's processes and their IDs.
func (m *meter) service(number int) (cpu time.Duration, pids []int) {
	for r, c := range m.clocks {
		if int(r.Service) == number {
			cpu += c.last - min(c.first, c.last)
			if !c.ended {
				pids = append(pids, int(r.PID))
			}
		}
	}
	return cpu, pids
}

func (m *meter) all() (cpu time.Duration) {
	for _, c := range m.clocks {
		cpu += c.last - min(c.first, c.last)
	}
	return cpu
}

// spent enters that the programs were attached for the time d. gauged is what they took, nil if it
// was not counted.
func (m *meter) spent(d time.Duration, threads bool, gauged *rate) {
	r := &m.rates[0]
	if threads {
		r = &m.rates[1]
	}
	if gauged != nil {
		*r = *gauged
	}
	m.followed += d
	m.on = time.Time{}
	m.own += time.Duration(r.cpu * d.Seconds())
	m.runs += r.runs * d.Seconds()
}

// following returns how long requests were followed until now.
func (m *meter) following(now time.Time) time.Duration {
	if m.on.IsZero() {
		return m.followed
	}
	return m.followed + now.Sub(m.on)
}

func (m *meter) cost() Cost {
	if m.unknown != "" {
		return Cost{Unknown: m.unknown}
	}
	return Cost{CPU: m.own, Runs: uint64(m.runs)}
}

// choose chooses the pace, from the services' processor time since the last choice.
func (m *meter) choose(now time.Time) {
	busy := m.all()
	services := float64(busy-m.busy) / max(now.Sub(m.at).Seconds(), 1e-3)
	m.busy, m.at = busy, now
	if m.fixed || m.unknown != "" {
		return
	}
	allowed := m.maxCost * services
	if float64(m.own) > m.maxCost*float64(busy) { // the first slices cost too much: make up for it
		allowed /= 2
	}
	m.pace = choose(allowed, m.rates)
}

// choose returns the pace whose cost is at most nine tenths of allowed, in ns per second. At most a
// third of it goes to the threads.
func choose(allowed float64, rates [2]rate) pace {
	left := 0.9 * max(allowed, idleCost*float64(time.Second))
	more := max(rates[1].cpu-rates[0].cpu, 1)
	follow := min(left/max(rates[0].cpu, 1), 1)
	p := pace{threads: min(left/3/more, follow)}
	p.follow = max(min((left-p.threads*more)/max(rates[0].cpu, 1), 1), leastFollow)
	p.threads = min(p.threads, p.follow)
	return p
}

// watch attaches and detaches the programs, and keeps what the services and the programs cost. They
// are attached when it begins.
func (c *Collector) watch(ctx context.Context) {
	threads := c.meter.pace.threads > 0
	var part float64 // of the next slice with threads
	var refreshed time.Time
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		c.mu.Lock()
		c.meter.on = began
		c.mu.Unlock()
		var gauged *rate
		var costErr error
		if n%gaugeEvery == 0 || n < firstSlices {
			gauged, costErr = c.gauge()
		} else {
			rest(ctx, slice)
		}
		c.mu.Lock()
		m := &c.meter
		if costErr != nil {
			m.unknown = costErr.Error()
		}
		m.spent(time.Since(began), threads, gauged)
		err := m.processes(c.p)
		if time.Since(refreshed) > refresh || time.Since(c.began) < firstRefresh {
			err = errors.Join(err, c.refresh())
			refreshed = time.Now()
		}
		switch {
		case m.fixed:
		case n < firstSlices-1: // without and with threads in turn
			m.pace.threads = float64((n + 1) % 2)
		case n == firstSlices-1 || m.pace.follow < 1 || n%gaugeEvery == 0:
			m.choose(time.Now())
		}
		part += m.pace.threads / m.pace.follow
		next := part >= 1
		if next {
			part--
		}
		off := time.Duration(float64(slice) * (1/m.pace.follow - 1))
		if off > 0 || next != threads {
			err = errors.Join(err, c.p.Detach())
		}
		c.mu.Unlock()
		rest(ctx, off)
		c.mu.Lock()
		if ctx.Err() == nil && (off > 0 || next != threads) && err == nil {
			err = c.p.Attach(next)
		}
		threads = next
		if err != nil {
			c.fail(err)
		}
		c.mu.Unlock()
	}
}

// gauge lets a slice pass and returns what the programs took.
func (c *Collector) gauge() (*rate, error) {
	cpu, runs, err := c.p.Cost(slice)
	if err != nil {
		return nil, err
	}
	return &rate{float64(cpu) / slice.Seconds(), float64(runs) / slice.Seconds()}, nil
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// refresh sets the limits of slow requests at P99. c.mu is held.
func (c *Collector) refresh() error {
	if err := c.p.SetClock(); err != nil {
		return err
	}
	readings, err := c.p.Read(len(c.opts.Targets))
	if err != nil {
		return err
	}
	limits := make([][wait.Stages]uint64, len(readings))
	for i, r := range readings {
		for st := range Stages {
			if h := NewHistogram(r.Times[st]); h.Count() >= 100 {
				limits[i][st] = uint64(h.ValueAt(99))
			}
			c.fronts[i][st].limit = int64(limits[i][st])
		}
	}
	return c.p.SetSlow(limits)
}

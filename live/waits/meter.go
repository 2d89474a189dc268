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
	// slice is for how long arriving requests are followed at a time, at least.
	slice = 100 * time.Millisecond
	// firstFinish and mostFinish bound how long the programs stay attached after a slice, for the requests that
	// are under way.
	firstFinish, mostFinish = 10 * time.Millisecond, time.Second
	// cutShare is one of how many requests may be cut off: P99.9 is then still among the others.
	cutShare = 2000
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

// A pace is the shares of the time in which arriving requests are followed, and in which the programs also
// remember which threads the processors run. The second is part of the first.
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
	// followed is for how long requests were followed before on; on is when that began last, zero while they
	// are not.
	followed time.Duration
	on       time.Time
	// finish is how long the programs stay attached after a slice: twice the P99.9 of the time in the host, and
	// at least leastFinish. With less, the slowest requests would be cut off, and the distributions would have too
	// few of them. leastFinish doubles when more than one of cutShare requests was, and halves when none was.
	finish, leastFinish time.Duration
	ended, cut          uint64 // requests with an end, and cut ones, when leastFinish was judged
	clocks              map[wait.Reader]*clock
	busy                time.Duration // the services' processor time at the time at
	at                  time.Time
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
		finish: firstFinish, leastFinish: firstFinish,
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
	m.own += time.Duration(r.cpu * d.Seconds())
	m.runs += r.runs * d.Seconds()
}

// finished judges the time after the slices by the counters at its end.
func (m *meter) finished(counts []wait.Counts) {
	var ended, cut uint64
	for _, c := range counts {
		ended += c.Requests
		cut += c.Unfinished()
	}
	more := cut - min(cut, m.cut)
	switch {
	case more > 1 && more*cutShare > ended-m.ended:
		m.leastFinish = min(2*m.finish, mostFinish)
		m.finish = m.leastFinish
	case ended-m.ended < cutShare:
		return // too few to judge
	case more == 0:
		m.leastFinish = max(m.leastFinish/2, firstFinish)
	}
	m.ended, m.cut = ended, cut
}

// length returns how long a slice is: at least as long as the time after it.
func (m *meter) length() time.Duration { return max(slice, m.finish) }

// pause returns for how long the programs are detached after a slice and its finish; less than 0: they stay.
func (m *meter) pause() time.Duration {
	if m.pace.follow >= 1 {
		return -1
	}
	return max(time.Duration(float64(m.length())*(1/m.pace.follow-1))-m.finish, 0)
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
	if m.pace.follow < 1 { // then each slice also costs its finish
		slices := 1 / (1 + float64(m.finish)/float64(m.length()))
		m.pace.follow, m.pace.threads = max(m.pace.follow*slices, leastFollow), m.pace.threads*slices
	}
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
	m := &c.meter
	threads := m.pace.threads > 0
	var part float64 // of the next slice with threads
	var refreshed time.Time
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		c.mu.Lock()
		m.on = began
		length := m.length()
		c.mu.Unlock()
		var gauged *rate
		var costErr error
		if n%gaugeEvery == 0 || n < firstSlices {
			gauged, costErr = c.gauge()
		}
		rest(ctx, length-time.Since(began))
		c.mu.Lock()
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
		pause := m.pause()
		if pause >= 0 {
			err = errors.Join(err, c.p.Finish())
		}
		m.followed += time.Since(m.on)
		m.on = time.Time{}
		finish := m.finish
		c.mu.Unlock()
		if pause >= 0 {
			began = time.Now()
			rest(ctx, finish)
			c.mu.Lock()
			m.spent(time.Since(began), threads, nil)
			counts, unread := c.p.Counts(len(c.opts.Targets))
			err = errors.Join(err, unread, c.p.Detach())
			m.finished(counts)
			c.mu.Unlock()
			rest(ctx, pause)
		}
		c.mu.Lock()
		if ctx.Err() == nil && pause >= 0 && err == nil {
			err = c.p.Attach()
		}
		if ctx.Err() == nil && err == nil {
			err = c.p.Threads(next)
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

// refresh sets the limits of slow requests at P99, and the time after a slice. c.mu is held.
func (c *Collector) refresh() error {
	if err := c.p.SetClock(); err != nil {
		return err
	}
	readings, err := c.p.Read(len(c.opts.Targets))
	if err != nil {
		return err
	}
	limits := make([][wait.Stages]uint64, len(readings))
	c.meter.finish = c.meter.leastFinish
	for i, r := range readings {
		longest := time.Duration(NewHistogram(r.Times[Host]).ValueAt(99.9))
		c.meter.finish = min(max(c.meter.finish, 2*longest), mostFinish)
		for st := range Stages {
			if h := NewHistogram(r.Times[st]); h.Count() >= 100 {
				limits[i][st] = uint64(h.ValueAt(99))
			}
			c.fronts[i][st].limit = int64(limits[i][st])
		}
	}
	return c.p.SetSlow(limits)
}

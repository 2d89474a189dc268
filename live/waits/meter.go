// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/wait"
)

const (
	tick = time.Second
	// gauge is how long in each tick the kernel counts the programs' time. The count of a whole second
	// would cost more.
	gauge = 100 * time.Millisecond
	// idleCost is the share of one processor below which the programs are never too expensive,
	// although the services are idle.
	idleCost = 0.001
)

// A meter knows the processor time of the services' processes and of the programs, and chooses the pace. The caller serializes its use.
type meter struct {
	maxCost float64
	fixed   bool
	pace    pace
	// own is the programs' time until at, runs the number of their runs. perSecond is their present
	// time for each second.
	own       time.Duration
	runs      float64
	perSecond time.Duration
	runRate   float64
	at        time.Time
	unknown   string // why own is not known
	clocks    map[wait.Reader]*clock
	busy      time.Duration // the services' processor time at the last tick
}

// A clock is the processor time of a process since it was first seen.
type clock struct {
	first, last time.Duration
	ended       bool
}

func newMeter(o Options) meter {
	return meter{maxCost: o.MaxCost, fixed: o.FixedRate, pace: pace{o.SampleRate, o.SampleRate}, at: time.Now(),
		clocks: map[wait.Reader]*clock{}}
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

// gauged enters what the programs took in the last gauge.
func (m *meter) gauged(now time.Time, cpu time.Duration, runs uint64) {
	scale := float64(time.Second) / float64(gauge)
	m.perSecond, m.runRate = time.Duration(float64(cpu)*scale), float64(runs)*scale
	m.advance(now)
}

// advance adds the cost since the last time, at the present rate.
func (m *meter) advance(now time.Time) {
	d := now.Sub(m.at).Seconds()
	m.own += time.Duration(d * float64(m.perSecond))
	m.runs += d * m.runRate
	m.at = now
}

func (m *meter) cost(now time.Time) Cost {
	m.advance(now)
	if m.unknown != "" {
		return Cost{Unknown: m.unknown}
	}
	return Cost{CPU: m.own, Runs: uint64(m.runs)}
}

// A pace is the shares of the time in which requests are followed, and in which the programs
// remember which threads the processors run. The second costs most on a host with many switches of
// threads, and only culprits need it.
type pace struct{ follow, threads float64 }

const (
	leastFollow  = 0.001
	leastThreads = 0.01
)

// adapt returns the next pace after a second in which the programs took own and the services took
// services. Above the limit it first remembers fewer threads, then follows fewer requests.
func (p pace) adapt(maxCost float64, own, services time.Duration) pace {
	allowed := max(maxCost*float64(services), idleCost*float64(time.Second))
	switch ratio := allowed / max(float64(own), 1); {
	case ratio < 1 && p.threads > leastThreads:
		p.threads = max(p.threads*max(ratio, 0.1), leastThreads)
	case ratio < 1:
		p.follow = max(p.follow*max(ratio, 0.1), leastFollow)
	case ratio > 1.4 && p.follow < 1:
		p.follow = min(p.follow*min(ratio, 1.5), 1)
	case ratio > 1.4:
		p.threads = min(p.threads*min(ratio, 1.5), 1)
	}
	p.threads = min(p.threads, p.follow)
	return p
}

// watch keeps the cost below its limit, the slow requests' limits at P99, and the clocks.
func (c *Collector) watch(ctx context.Context) {
	next := time.NewTicker(tick)
	defer next.Stop()
	for {
		cpu, runs, costErr := c.p.Cost(gauge)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		if costErr != nil {
			c.meter.unknown = costErr.Error()
		} else {
			c.meter.gauged(time.Now(), cpu, runs)
		}
		err := c.tick()
		if err != nil {
			c.fail(err)
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// tick is one step of watch. c.mu is held.
func (c *Collector) tick() error {
	if err := c.p.SetClock(); err != nil {
		return err
	}
	m := &c.meter
	if err := m.processes(c.p); err != nil {
		return err
	}
	busy := m.all()
	if !m.fixed && m.unknown == "" {
		next := m.pace.adapt(m.maxCost, m.perSecond, busy-m.busy)
		if next != m.pace {
			if err := c.p.SetSample(next.follow, next.threads); err != nil {
				return err
			}
			m.pace = next
		}
	}
	m.busy = busy
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

// SPDX-License-Identifier: Apache-2.0

package poller

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/iouring"
	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/lane/device"
)

// How long one busy poll of the kernel lasts. With one NAPI, the kernel stops earlier if another
// thread needs the processor (NAPI_F_END_ON_RESCHED). With several NAPIs, it does not stop. A
// kernel without preemption then runs no other thread during the poll.
const (
	busyOne  = 200 * time.Microsecond
	busyMany = 50 * time.Microsecond
)

// lookAgain is how often the thread looks up the NAPIs of its queues, even without a sign that they
// have changed. It is also the longest sleep.
const lookAgain = time.Second

// gonePolls is a number of rounds. After so many rounds without a counted poll, the thread looks up
// the NAPIs again, because their IDs may no longer exist.
const gonePolls = 64

// thread is the polling thread.
type thread struct {
	p    *process
	id   int
	ring *iouring.Ring

	begun, stopped   chan struct{}
	ends             atomic.Bool
	sleeps, resolved atomic.Uint64
	napis            atomic.Pointer[[]uint32]
}

// startThread starts the polling thread and returns when it is set up. The set-up is everything
// that needs privileges. The thread then waits until begun is closed.
func startThread(p *process) (*thread, error) {
	t := &thread{p: p, begun: make(chan struct{}), stopped: make(chan struct{})}
	none := []uint32{}
	t.napis.Store(&none)
	setUp := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends together with its goroutine
		err := t.setUp()
		setUp <- err
		if err != nil {
			return
		}
		select {
		case <-t.begun:
			err = t.run()
		case <-t.stopped:
		}
		p.ended <- errors.Join(err, t.ring.Close())
	}()
	return t, <-setUp
}

func (t *thread) setUp() (err error) {
	t.id = unix.Gettid()
	busy := busyOne
	if len(t.p.Queues) > 1 {
		busy = busyMany
	}
	if t.ring, err = iouring.New(busy); err != nil {
		return err
	}
	if err := sched.SetAffinity(t.id, t.p.CPUs); err != nil {
		return err
	}
	if err := sched.Set(t.id, sched.Policy{Name: t.p.Policy, Priority: t.p.Priority, Nice: t.p.Nice}); err != nil {
		return err
	}
	t.p.count.thread = uint32(t.id)
	if err := t.resolve(); err != nil {
		return err
	}
	if n := len(*t.napis.Load()); n < len(t.p.Queues) {
		return fmt.Errorf("the kernel lists a NAPI for %d of %s's receive queues %s", n, t.p.Dev,
			device.FormatCPUList(t.p.Queues))
	}
	return nil
}

func (t *thread) begin() { close(t.begun) }

// stop tells the thread to end. A sleeping thread notices this within lookAgain.
func (t *thread) stop() {
	t.ends.Store(true)
	close(t.stopped)
	// Wake the thread, to save that time.
	t.p.count.alarm.SetDeadline(time.Now())
}

// resolve looks up the NAPIs of the queues. The thread polls these from then on.
func (t *thread) resolve() error {
	ids, err := t.p.queues.napis()
	if err != nil {
		return err
	}
	old := *t.napis.Load()
	if slices.Equal(ids, old) {
		return nil
	}
	for _, id := range old {
		if !slices.Contains(ids, id) {
			if err := t.ring.Remove(id); err != nil {
				return err
			}
		}
	}
	for _, id := range ids {
		if err := t.ring.Add(id); err != nil {
			return err
		}
	}
	t.p.count.of(ids)
	t.napis.Store(&ids)
	t.resolved.Add(1)
	return nil
}

// run polls until the thread is told to end or the device no longer exists.
func (t *thread) run() error {
	c := t.p.count
	timeout := time.Duration(t.p.Timeout)
	now := time.Now()
	lastPacket, looked := now, now
	polls, packets, _, others := c.sum()
	missed := 0
	for !t.ends.Load() {
		if len(*t.napis.Load()) == 0 {
			time.Sleep(lookAgain / 10)
		} else if err := t.ring.Poll(); err != nil {
			return err
		}
		now = time.Now()
		p, n, _, o := c.sum()
		if n+o != packets+others {
			packets, others, lastPacket = n, o, now
		}
		if missed++; p != polls {
			polls, missed = p, 0
		}
		if now.Sub(looked) > lookAgain || missed > gonePolls {
			looked, missed = now, 0
			if err := t.resolve(); err != nil {
				return err
			}
		}
		if now.Sub(lastPacket) < timeout || len(*t.napis.Load()) == 0 {
			continue
		}
		t.sleeps.Add(1)
		for !t.ends.Load() {
			if err := c.wait(packets+others, lookAgain); err != nil {
				return fmt.Errorf("sleep: %w", err)
			}
			if _, n, _, o := c.sum(); n+o != packets+others {
				break
			}
			if err := t.resolve(); err != nil {
				return err
			}
			if len(*t.napis.Load()) == 0 {
				break
			}
		}
		lastPacket = time.Now()
	}
	return nil
}

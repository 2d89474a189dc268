// SPDX-License-Identifier: Apache-2.0

package thread

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onThread runs f in a goroutine of its own. If f locks its thread, the thread ends with f.
func onThread(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
}

func TestLock(t *testing.T) {
	all, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1]
	onThread(func() {
		if err := (Setup{CPUs: []int{last}}).Lock(); err != nil {
			t.Error(err)
			return
		}
		if got, err := Allowed(); err != nil || !slices.Equal(got, []int{last}) {
			t.Errorf("allowed %v (%v), want %d", got, err, last)
		}
		if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != 1 {
			t.Errorf("timer slack %d (%v), want 1", slack, err)
		}
	})
	if got, err := Allowed(); err != nil || !slices.Equal(got, all) {
		t.Errorf("another thread may use %v (%v) afterwards, want %v", got, err, all)
	}
}

func TestFIFO(t *testing.T) {
	var err error
	onThread(func() {
		if err = (Setup{FIFO: 1}).Lock(); err != nil {
			return
		}
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil || attr.Policy != unix.SCHED_FIFO || attr.Priority != 1 {
			t.Errorf("policy %d priority %d (%v), want SCHED_FIFO 1", attr.Policy, attr.Priority, err)
		}
	})
	if errors.Is(err, unix.EPERM) {
		t.Skipf("SCHED_FIFO needs CAP_SYS_NICE: %v", err)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestLockErrors(t *testing.T) {
	for want, s := range map[string]Setup{
		"CPU -1":             {CPUs: []int{-1}},
		"CPU 100000":         {CPUs: []int{100_000}},
		"to CPUs 8191":       {CPUs: []int{8191}}, // beyond a set of 1024
		"fifo priority 100":  {FIFO: 100},
		"fifo priority -300": {FIFO: -300},
	} {
		onThread(func() {
			if err := s.Lock(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %s", s, err, want)
			}
		})
	}
}

func TestBlockPreemption(t *testing.T) {
	onThread(func() {
		if err := (Setup{}).Lock(); err != nil {
			t.Error(err)
			return
		}
		if err := BlockPreemption(); err != nil {
			t.Error(err)
			return
		}
		var got unix.Sigset_t
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &got); err != nil {
			t.Error(err)
		}
		if got.Val[0]&(1<<(uint(unix.SIGURG)-1)) == 0 {
			t.Error("SIGURG is not blocked")
		}
	})
}

func TestClock(t *testing.T) {
	c := StartClock()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	a := c.Now()
	// The clock was started first, then ts was read, then a.
	if c.Start() > ts.Nano() || c.Start()+a < ts.Nano()-1000 || a < 0 {
		t.Errorf("start %d, CLOCK_MONOTONIC %d, now %d", c.Start(), ts.Nano(), c.Start()+a)
	}
	if CPUTime() <= 0 {
		t.Error("no cpu time")
	}
}

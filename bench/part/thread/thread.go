// SPDX-License-Identifier: Apache-2.0

// Package thread prepares the calling OS thread for a measurement: processors, scheduling
// class, timer slack, CPU time.
//
// It acts on the calling thread only and undoes nothing: callers lock the goroutine to its
// thread and let the thread end with it. It does not touch other threads, cgroups or the
// system.
package thread

import (
	"fmt"
	"math"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
)

// A Setup is the configuration of a measuring thread.
type Setup struct {
	// CPUs on which the thread may run; empty keeps the inherited set.
	CPUs []int `json:"cpus,omitempty"`
	// FIFO is the SCHED_FIFO priority, 1 to 99; 0 keeps the inherited class. It needs
	// CAP_SYS_NICE or RLIMIT_RTPRIO.
	FIFO int `json:"fifoPriority,omitempty"`
}

// Lock locks the calling goroutine to its thread and applies s to the thread. The goroutine must not
// unlock the thread. The Go runtime then ends the thread together with the goroutine, so that no
// other goroutine gets the settings.
func (s Setup) Lock() error {
	runtime.LockOSThread()
	// A slack of 1 ns instead of 50 us makes sleeps end on time (prctl(2)). A thread of a real-time
	// class has no slack.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	if len(s.CPUs) > 0 {
		if err := sched.SetAffinity(0, s.CPUs); err != nil {
			return err
		}
	}
	if s.FIFO != 0 {
		if s.FIFO < 1 || s.FIFO > 99 {
			return fmt.Errorf("fifo priority %d: want 1 to 99", s.FIFO)
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(s.FIFO)}
		if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
			return fmt.Errorf("SCHED_FIFO priority %d: %w", s.FIFO, err)
		}
	}
	return nil
}

// BlockPreemption keeps the Go runtime's preemption signal (SIGURG) from
// interrupting system calls of the calling thread. The thread must then reach
// function calls often, or the garbage collector waits for it.
func BlockPreemption() error {
	var set unix.Sigset_t
	set.Val[(unix.SIGURG-1)/64] |= 1 << ((uint(unix.SIGURG) - 1) % 64)
	return unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil)
}

// A Clock reads CLOCK_MONOTONIC relative to its start. It uses time.Since, which reads the same clock
// through the vDSO, at a tenth of the cost of a system call.
type Clock struct {
	start time.Time
	mono  int64
}

// StartClock returns a clock that now reads 0.
func StartClock() Clock {
	// If the thread loses its processor between two readings, the offset between the clocks is
	// wrong by that time. So only the two readings that are closest in time are used.
	var c Clock
	closest := int64(math.MaxInt64)
	for range 5 {
		before := Monotonic()
		start := time.Now()
		if after := Monotonic(); after-before < closest {
			closest = after - before
			c = Clock{start, before + closest/2}
		}
	}
	return c
}

// Monotonic returns CLOCK_MONOTONIC in ns.
func Monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // cannot fail with a valid clock and pointer
	}
	return ts.Nano()
}

// Now returns the ns since the clock was started.
func (c Clock) Now() int64 { return int64(time.Since(c.start)) }

// Start returns the CLOCK_MONOTONIC time in ns at which the clock was started;
// it is comparable between processes until the next boot.
func (c Clock) Start() int64 { return c.mono }

// CPUTime returns the CPU time of the calling thread in ns, user and system.
func CPUTime() int64 {
	var ts unix.Timespec
	// A raw system call is the fastest, and this call does not block. A generator uses it between
	// requests.
	if _, _, e := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&ts)),
		0); e != 0 {
		panic(e) // cannot fail with a valid clock and pointer
	}
	return ts.Nano()
}

// Allowed returns the CPUs on which the calling thread may run, ascending.
func Allowed() ([]int, error) { return sched.Affinity(0) }

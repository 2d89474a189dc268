// SPDX-License-Identifier: Apache-2.0

package thread

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The runtime hands the processor of a thread that works for 100 ms to another
// one and back, which is a voluntary switch of context; not while it is held.
func TestHold(t *testing.T) {
	switches := func(held bool) int64 {
		n := make(chan int64)
		go func() {
			if err := (Setup{}).Lock(); err != nil {
				t.Error(err)
			}
			if err := BlockPreemption(); err != nil {
				t.Error(err)
			}
			var before, after unix.Rusage
			if held {
				Hold()
			}
			_ = unix.Getrusage(unix.RUSAGE_THREAD, &before) // cannot fail with a valid pointer
			clock := StartClock()
			for clock.Now() < int64(100*time.Millisecond) {
				work(10)
			}
			_ = unix.Getrusage(unix.RUSAGE_THREAD, &after)
			if held {
				Release()
			}
			n <- after.Nvcsw - before.Nvcsw
		}()
		return <-n
	}
	// Nine times in 100 ms, if the host lets the thread that asks for it run.
	asked := int64(0)
	for range 20 {
		if asked = switches(false); asked > 0 {
			break
		}
	}
	if asked == 0 {
		t.Skip("nobody asked for the processor")
	}
	if n := switches(true); n != 0 {
		t.Errorf("%d voluntary switches of a thread that does not wait", n)
	}
}

// work calls functions that look whether they are to make way.
//
//go:noinline
func work(n int) int {
	if n == 0 {
		return 0
	}
	var room [256]byte
	room[n] = byte(n)
	return int(room[n]) + work(n-1)
}

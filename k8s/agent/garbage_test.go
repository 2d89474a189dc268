// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// TestCollectBetween: garbage is collected once after requests, if there is enough, and
// not while one follows the other. As long as they come more of it may be left, and when
// they have ended what is free goes back.
func TestCollectBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asked, due, collected, released, percent := make(chan struct{}, 1), true, 0, 0, 70
		done := make(chan error, 1)
		go func() {
			done <- collector{
				due: func() bool { return due }, collect: func() { collected++ }, release: func() { released++ },
				percent: func(to int) int { was := percent; percent = to; return was },
			}.between(ctx, asked)
		}()
		type seen struct{ collected, released, percent int }
		after := func(pause time.Duration, want seen) {
			t.Helper()
			time.Sleep(pause) // of synctest's clock
			synctest.Wait()
			if got := (seen{collected, released, percent}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		after(quiet, seen{1, 0, 70}) // what its start has left
		after(time.Hour, seen{1, 0, 70})
		for range 5 {
			wake(asked)
			after(quiet-time.Millisecond, seen{1, 0, busyPercent})
		}
		after(time.Millisecond, seen{2, 0, busyPercent})
		after(rest-time.Millisecond, seen{2, 0, busyPercent})
		wake(asked) // the next pod, before it was taken that none comes
		after(quiet, seen{3, 0, busyPercent})
		after(rest, seen{3, 1, 70})
		after(time.Hour, seen{3, 1, 70})
		due = false
		wake(asked)
		after(quiet, seen{3, 1, busyPercent})
		after(time.Hour, seen{3, 2, 70})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestCollectionDue: it is for what was allocated since the last one.
func TestCollectionDue(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // the next is at 40 MiB or more
	runtime.GC()
	if collectionDue() {
		t.Error("due just after one")
	}
	kept := make([][]byte, 20)
	for i := range kept {
		kept[i] = make([]byte, 1<<20)
	}
	if !collectionDue() {
		t.Error("not due after 20 MiB")
	}
	runtime.KeepAlive(kept)
	runtime.GC()
	if collectionDue() {
		t.Error("due after what is kept was collected")
	}
}

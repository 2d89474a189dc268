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
// not while one follows the other.
func TestCollectBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asked, due, collected := make(chan struct{}, 1), true, 0
		done := make(chan error, 1)
		go func() {
			done <- collectBetween(ctx, asked, func() bool { return due }, func() { collected++ })
		}()
		after := func(pause time.Duration, want int) {
			t.Helper()
			time.Sleep(pause) // of synctest's clock
			synctest.Wait()
			if collected != want {
				t.Errorf("collected %d times, want %d", collected, want)
			}
		}
		after(quiet, 1) // what its start has left
		after(time.Hour, 1)
		for range 5 {
			wake(asked)
			after(quiet-time.Millisecond, 1)
		}
		after(time.Millisecond, 2)
		after(time.Hour, 2)
		due = false
		wake(asked)
		after(time.Hour, 2)
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

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

// TestCollector: garbage is collected once after requests, if there is enough, and
// not while one follows the other; memory is given back when none has come for longer.
func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asked, due, collected, rests, rested := make(chan struct{}, 1), true, 0, false, 0
		c := collector{due: func() bool { return due }, collect: func() { collected++ }, rest: func(now bool) {
			if now == rests {
				t.Errorf("rests: %t, and is told so", rests)
			}
			if rests = now; rests {
				rested++
			}
		}}
		done := make(chan error, 1)
		go func() { done <- c.between(ctx, asked) }()
		after := func(pause time.Duration, wantCollected, wantRested int, wantRests bool) {
			t.Helper()
			time.Sleep(pause) // of synctest's clock
			synctest.Wait()
			if collected != wantCollected || rested != wantRested || rests != wantRests {
				t.Errorf("collected %d times, rested %d, rests %t; want %d, %d, %t", collected, rested, rests, wantCollected, wantRested, wantRests)
			}
		}
		after(quiet, 1, 0, false) // what its start has left
		after(atRest, 1, 1, true)
		after(time.Hour, 1, 1, true)
		for range 5 {
			wake(asked)
			after(quiet-time.Millisecond, 1, 1, false)
		}
		after(time.Millisecond, 2, 1, false)
		after(atRest-time.Millisecond, 2, 1, false)
		wake(asked)
		after(quiet, 3, 1, false)
		due = false
		wake(asked)
		after(quiet+atRest, 3, 2, true)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestOfRuntime: at rest less garbage may lie, and after it as much as before.
func TestOfRuntime(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(70))
	percent := func() int {
		m := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(m)
		return int(m[0].Value.Uint64())
	}
	c := ofRuntime()
	if c.rest(true); percent() != percentAtRest {
		t.Errorf("at rest %d %%, want %d", percent(), percentAtRest)
	}
	if c.rest(false); percent() != 70 {
		t.Errorf("after it %d %%, want what was before, 70", percent())
	}
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

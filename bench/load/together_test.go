// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"sync"
	"testing"

	"github.com/niclane/niclane/bench/part/thread"
)

// TestTogether: generators with the same StartMono begin at that time, even if they are started at
// different times.
func TestTogether(t *testing.T) {
	address := serve(t, "127.0.0.1:0")
	c := Config{Address: address, Rate: 1000, Arrivals: Constant, Connections: 2, Duration: 20e6, Warmup: 10e6,
		Timeout: 20e9}
	c.StartMono = thread.Monotonic() + 2e9 // a busy host takes long to connect
	var wg sync.WaitGroup
	var got [2]Result
	var errs [2]error
	for i := range got {
		wg.Go(func() { got[i], errs[i] = Run(t.Context(), c) })
	}
	wg.Wait()
	for i, r := range got {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if d := r.StartMono - (c.StartMono + c.Warmup); d < -1000 || d > 2e6 {
			t.Errorf("generator %d: its counted time begins %d ns after the time it was told", i, d)
		}
	}
	// A time in the past, or none, means now.
	c.StartMono = 1
	before := thread.Monotonic()
	r := result(t, c)
	if r.StartMono < before || r.StartMono > thread.Monotonic() {
		t.Errorf("began at %d, it was %d", r.StartMono, before)
	}
	// A time too far ahead is limited to a minute.
	var config Config
	config.StartMono = math.MaxInt64
	p := newPool(t.Context(), &Config{Threads: 0}, nil)
	defer p.close()
	if first := config.first(p.clock) - p.clock.Now(); first > maxAhead || first < maxAhead-10e9 {
		t.Errorf("waits for %d ns", first)
	}
}

// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/niclane/niclane/live/waits"
)

// A world is a simulated host: clock, meter and switcher in one. Its truth is known.
type world struct {
	now    time.Time
	random *rand.Rand
	// rate is the requests per second, effect the factor of each variant on the time of requests, both
	// at a time since the start. phi is how much a second's level depends on that of the second before.
	rate   func(t float64) float64
	effect func(variant int, t float64) float64
	phi    float64
	level  float64

	start, last time.Time
	snapshot    waits.Snapshot
	carry       float64

	variant, undone int
	order           []int // variants, in the order of the switches
	// Each of these is called, if not nil, and can fail.
	onSwitch, onCheck func(w *world) error
	onUndo            func() error
	pids              func(w *world) []int
	silent            func(w *world) bool
	events            func(variant int) (retransmits, drops uint64)
}

func newWorld(seed uint64) *world {
	w := &world{now: time.Unix(1_700_000_000, 0), random: rand.New(rand.NewPCG(seed, 7)),
		rate:   func(float64) float64 { return 100 },
		effect: func(int, float64) float64 { return 1 }}
	w.start, w.last = w.now, w.now
	w.snapshot.Services = []waits.Service{{Target: waits.Target{Name: "svc"}}}
	for i := range w.snapshot.Services[0].Waits {
		w.snapshot.Services[0].Waits[i] = &waits.Histogram{}
	}
	return w
}

func (w *world) Now() time.Time { return w.now }

func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Time passes in small steps, so that the level changes within a window.
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(min(time.Second, end.Sub(w.now)))
		w.pass()
	}
	return ctx.Err()
}

// pass serves the requests since the last call.
func (w *world) pass() {
	dt, t := w.now.Sub(w.last).Seconds(), w.now.Sub(w.start).Seconds()
	w.last = w.now
	phi := math.Pow(w.phi, dt)
	w.level = phi*w.level + math.Sqrt(1-phi*phi)*w.random.NormFloat64()
	w.snapshot.Duration += time.Duration(dt * 1e9)
	if w.silent != nil && w.silent(w) {
		return
	}
	load := w.rate(t) / w.rate(0)
	n := w.rate(t)*dt + w.carry
	s := &w.snapshot.Services[0]
	scale := 100e3 * math.Exp(0.15*w.level) * load * w.effect(w.variant, t)
	for range int(n) {
		// The slowest percent waits ten times as long.
		v := scale * (0.5 + w.random.ExpFloat64()/2)
		if w.random.IntN(50) == 0 {
			v *= 10
		}
		s.Waits[waits.Host].Record(int64(v))
		s.Waits[waits.SocketToCard].Record(int64(v * 0.6))
		s.Waits[waits.App].Record(int64(40e3 * (0.5 + w.random.ExpFloat64()/2)))
	}
	w.carry = n - math.Trunc(n)
	s.Requests += uint64(n)
	s.Seen += uint64(n)
	s.CPU += time.Duration(n * 20e3 * (1 + 0.02*w.random.NormFloat64()))
	if w.events != nil {
		r, d := w.events(w.variant)
		s.Retransmits += r
		s.Drops += d
	}
}

func (w *world) Snapshot() (waits.Snapshot, error) {
	out := w.snapshot
	out.Services = []waits.Service{w.snapshot.Services[0]}
	out.Followed, out.Services[0].Processes = out.Duration, []int{11, 12}
	if w.pids != nil {
		out.Services[0].Processes = w.pids(w)
	}
	for i, h := range w.snapshot.Services[0].Waits {
		out.Services[0].Waits[i] = waits.Merge(h)
	}
	return out, nil
}

func (w *world) Switch(ctx context.Context, variant int) error {
	w.order = append(w.order, variant)
	w.variant = variant // also if it fails: the lanes may be of either
	w.now = w.now.Add(50 * time.Millisecond)
	if w.onSwitch != nil {
		return w.onSwitch(w)
	}
	return ctx.Err()
}

func (w *world) Check(context.Context) error {
	if w.onCheck != nil {
		return w.onCheck(w)
	}
	return nil
}

func (w *world) Undo(ctx context.Context) error {
	if ctx.Err() != nil {
		return errors.New("the context of the undo has ended")
	}
	w.undone++
	w.variant = 0
	if w.onUndo != nil {
		return w.onUndo()
	}
	return nil
}

// config returns a trial of n variants in this world.
func (w *world) config(n int, windows int) Config {
	c := Config{Title: "a simulated trial", Services: []Service{{Name: "svc"}}, Meter: w, Switcher: w, Clock: w,
		Window: 5 * time.Second, Settle: time.Second, Seed: w.random.Uint64()}
	c.For = time.Duration(windows) * (c.Window + c.Settle)
	c.Trial.LoadWithin, c.Trial.Worth = 200, 50
	c.Variants = []Variant{{Name: "without"}}
	for i := 1; i < n; i++ {
		c.Variants = append(c.Variants, Variant{Name: fmt.Sprintf("lane%d", i), Lanes: "version: 1\n"})
	}
	return c
}

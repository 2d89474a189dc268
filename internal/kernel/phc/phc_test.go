// SPDX-License-Identifier: Apache-2.0

package phc

import (
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// A simulated PHC: its time at a time of CLOCK_MONOTONIC.
type simulated struct {
	offset int64
	drift  float64 // ns for each ns
	since  int64   // CLOCK_MONOTONIC of offset
}

func (s simulated) at(mono int64) int64 {
	return mono + s.offset + int64(math.Round(s.drift*float64(mono-s.since)))
}

// step makes the clock jump at a time.
func (s simulated) step(mono, by int64) simulated {
	return simulated{s.at(mono) - mono + by, s.drift, mono}
}

// reading reads s at a time, with a random error below limit.
func (s simulated) reading(mono, limit int64) Reading {
	return Reading{PHC: s.at(mono), Mono: mono + rand.Int64N(2*limit+1) - limit, Error: limit}
}

// convert is card_stamp in internal/traffic/wait/c/stamp.h.
func (r Relation) convert(phc int64) int64 {
	d := phc - r.PHC
	return r.Mono + d + d*r.Slope>>32
}

const start, interval = int64(123456789012345), int64(Interval)

// TestRelation: between two readings, converted times are as near as Error says, and within a few
// microseconds, whatever the clock's time and drift.
func TestRelation(t *testing.T) {
	for name, s := range map[string]simulated{
		"equal":                {},
		"behind":               {offset: -7e12},
		"another epoch":        {offset: 1795921213157614330},
		"100 ppm":              {offset: 37e9, drift: 100e-6, since: start},
		"-100 ppm":             {offset: 37e9, drift: -100e-6, since: start},
		"wraps in the middle":  {offset: math.MaxInt64 - start - 10*interval, drift: 20e-6, since: start},
		"began before 1970":    {offset: -2 * start, since: start},
		"400 ppm by something": {drift: 400e-6, since: start},
	} {
		t.Run(name, func(t *testing.T) {
			var tr Tracker
			const limit = 500 // of a reading, ns
			for i := range int64(30) {
				mono := start + i*interval
				r, ok := tr.Add(s.reading(mono, limit))
				if ok != (i > 0) || r.Jumps != 0 {
					t.Fatalf("reading %d: valid %v, %d jumps", i, ok, r.Jumps)
				}
				if !ok {
					continue
				}
				if i > 10 && r.Error > 700 {
					t.Errorf("error %d", r.Error)
				}
				for _, after := range []int64{-interval, -1000, 0, 1000, interval} {
					got := r.convert(s.at(mono + after))
					if d := got - (mono + after); d > r.Error+2 || d < -r.Error-2 || r.Error > 3000 {
						t.Errorf("reading %d: %d ns after it, wrong by %d, want within %d", i, after, d, r.Error)
					}
				}
			}
		})
	}
}

// TestJumps: after a jump there is no relation until the second reading, which is right again.
func TestJumps(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, 37 * time.Second, time.Millisecond, -time.Millisecond,
		200 * time.Microsecond, math.MinInt64} {
		s := simulated{drift: 100e-6, since: start}
		var tr Tracker
		for i := range int64(20) {
			mono := start + i*interval
			if i == 10 {
				s = s.step(mono-interval/3, int64(by))
			}
			r, ok := tr.Add(s.reading(mono, 500))
			if want := i > 0 && i != 10; ok != want || r.Jumps != map[bool]int64{true: 1}[i >= 10] {
				t.Errorf("jump of %v: reading %d: valid %v, want %v; %d jumps", by, i, ok, want, r.Jumps)
			}
			if d := r.convert(s.at(mono)) - mono; ok && (d > 1000 || d < -1000) {
				t.Errorf("jump of %v: reading %d: wrong by %d", by, i, d)
			}
		}
	}
}

// TestSlew: a servo's change of the rate is no jump; a rate that no servo has is one each time.
func TestSlew(t *testing.T) {
	for _, c := range []struct {
		drift float64
		jumps bool
	}{{200e-6, false}, {-200e-6, false}, {5e-3, true}} {
		s := simulated{drift: 50e-6, since: start}
		var tr Tracker
		var r Relation
		for i := range int64(12) {
			mono := start + i*interval
			if i == 10 {
				s = simulated{s.at(mono-interval) - (mono - interval), c.drift, mono - interval}
			}
			r, _ = tr.Add(s.reading(mono, 500))
		}
		if (r.Jumps > 0) != c.jumps {
			t.Errorf("rate %g: %d jumps", c.drift, r.Jumps)
		}
	}
}

// TestSlowReading: a reading during which the thread did not run changes nothing.
func TestSlowReading(t *testing.T) {
	s := simulated{drift: 100e-6, since: start}
	var tr Tracker
	if _, ok := tr.Add(Reading{Error: maxError + 1}); ok {
		t.Error("a slow reading gives a relation")
	}
	tr.Add(s.reading(start, 100))
	want, _ := tr.Add(s.reading(start+interval, 100))
	got, ok := tr.Add(Reading{PHC: 5, Mono: start + 2*interval, Error: maxError + 1})
	if !ok || got != want {
		t.Errorf("%+v, %v, want %+v", got, ok, want)
	}
}

// TestNoDevice: a device without a clock is no error, and one that is not there is.
func TestNoDevice(t *testing.T) {
	if s, err := Look("lo"); err != nil || s.Clock != -1 || s.All {
		t.Errorf("lo: %+v, %v", s, err)
	}
	if _, err := Look("no-such-device"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("no device: %v", err)
	}
	if _, err := Open(99999); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no clock: %v", err)
	}
	c := Clock{fd: -1}
	if _, err := c.Read(); !errors.Is(err, unix.EBADF) {
		t.Errorf("read of a closed clock: %v", err)
	}
}

// TestRealOffset: CLOCK_REALTIME and CLOCK_MONOTONIC plus their difference are the same time.
func TestRealOffset(t *testing.T) {
	offset, slack := realOffset()
	var mono unix.Timespec
	must.Do(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono))
	if d := time.Since(time.Unix(0, mono.Nano()+offset)); d < -time.Second || d > time.Second || slack <= 0 {
		t.Errorf("wrong by %v, slack %d", d, slack)
	}
}

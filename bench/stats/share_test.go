// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestWithin(t *testing.T) {
	// 100 windows are equal. Each has 99 samples of 1 ms and one of 5 ms.
	s := NewSample(windowed(100, func(_ int, record func(int64)) {
		for range 99 {
			record(1e6)
		}
		record(5e6)
	}))
	got, err := s.Within(2e6)
	if err != nil {
		t.Fatal(err)
	}
	// Interval of Clopper and Pearson for 97.6 of 9758. These numbers are for equal windows: t with 99
	// degrees of freedom is 1.984, not 1.960.
	if got.Beyond != 100 || got.Within != 0.99 || math.Abs(1-got.High-0.00812) > 1e-5 ||
		math.Abs(1-got.Low-0.01218) > 1e-5 {
		t.Errorf("got %+v, beyond %.5f to %.5f", got, 1-got.High, 1-got.Low)
	}
	if got.Missing != "" {
		t.Errorf("missing %q", got.Missing)
	}
	// No sample is beyond. The bound is that of the rule of three, for 10000 samples.
	got, err = s.Within(10e6)
	if err != nil || got.Within != 1 || got.High != 1 || got.Low < 0.9995 || got.Low > 0.9997 ||
		got.Missing != "0 of 10000 samples are beyond, want at least 10" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := s.Within(0); err != nil || got.Within != 0 || got.Low != 0 {
		t.Errorf("nothing within: %+v, %v", got, err)
	}
	for _, v := range []int64{-1, highest + 1} {
		if _, err := s.Within(v); err == nil {
			t.Errorf("within %d: no error", v)
		}
	}
	var blind *BlindError
	if _, err := NewSample(windowed(9, func(_ int, record func(int64)) { record(1) })).Within(5); !errors.As(err,
		&blind) {
		t.Errorf("nine windows: %v", err)
	}
	if _, err := NewSample().Within(5); err == nil {
		t.Error("no samples: no error")
	}
}

// TestWithinOneStall checks that one stall counts as one event, even if none of its samples is
// beyond v.
func TestWithinOneStall(t *testing.T) {
	s := NewSample(windowed(100, func(w int, record func(int64)) {
		for range 100 {
			record(1e6)
		}
		if w == 30 {
			for i := range int64(100) {
				record(1e9 + i*1e6)
			}
		}
	}))
	got, err := s.Within(2e6)
	if err != nil || !strings.Contains(got.Missing, "too few events") {
		t.Errorf("got %+v, %v", got, err)
	}
	above, err := s.Within(2e9)
	if err != nil || above.Low > 0.99 {
		t.Errorf("got %+v, %v: the stall makes 10100 samples worth no more than 300", above, err)
	}
}

func TestWithinCoverage(t *testing.T) {
	for _, c := range []struct {
		server server
		at     int64
	}{{exponential(), 600e3}, {autoregressive(0.99, 0.7), 500e3}, {stalling(2, 0.02), 1e6}} {
		truth := 1 - c.server.beyond(float64(c.at))
		rng := rand.New(rand.NewPCG(8, 8))
		const trials = 60
		in := 0
		for range trials {
			got, err := NewSample(sample(rng, c.server, 1, 100_000)...).Within(c.at)
			if err != nil {
				t.Fatal(err)
			}
			if got.Low <= truth && truth <= got.High {
				in++
			}
		}
		if in < 54 {
			t.Errorf("%s: %d of %d intervals cover %.5f", c.server.name, in, trials, truth)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func close_(got Interval, value, low, high float64) bool {
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
	return near(got.Value, value) && near(got.Low, low) && near(got.High, high)
}

func TestDerive(t *testing.T) {
	r := Result{Duration: 60e9, Estimate: &Estimate{Energy: Interval{30000, 27000, 33000},
		Power: Interval{500, 450, 550}}}
	// 100 Gbit/s for a minute at 500 W. The bytes of one second may be outside the window.
	d, err := r.Derive(Work{Duration: 60e9, Bytes: 750e9, BytesError: 12.5e9, Requests: 6e6, SLA: "P99 ≤ 1 ms"})
	if err != nil {
		t.Fatal(err)
	}
	if !close_(*d.Rate, 100, 100*59.0/60, 100*61.0/60) {
		t.Errorf("rate %v", *d.Rate)
	}
	if !close_(*d.RatePerWatt, 0.2, 100*59.0/60/550, 100*61.0/60/450) {
		t.Errorf("rate per watt %v", *d.RatePerWatt)
	}
	if !close_(*d.JoulesPerRequest, 0.005, 0.0045, 0.0055) || !close_(*d.RequestsPerJoule, 200, 1/0.0055, 1/0.0045) {
		t.Errorf("per request %v, %v", *d.JoulesPerRequest, *d.RequestsPerJoule)
	}
	if d.Work.SLA != "P99 ≤ 1 ms" {
		t.Errorf("SLA %q", d.Work.SLA)
	}
	if d, err = r.Derive(Work{Duration: 60e9, Requests: 1}); err != nil || d.Rate != nil || d.RatePerWatt != nil {
		t.Errorf("%v: a rate of bytes that nobody counted: %v", err, d.Rate)
	}
}

func TestDeriveRefuses(t *testing.T) {
	r := Result{NotMeasured: "too short"}
	if _, err := r.Derive(Work{Duration: 1}); !errors.Is(err, ErrNotMeasured) ||
		!strings.Contains(err.Error(), "too short") {
		t.Errorf("%v", err)
	}
	if _, err := r.AboveIdle(r); !errors.Is(err, ErrNotMeasured) {
		t.Errorf("%v", err)
	}
	r = Result{Duration: 60e9, Estimate: &Estimate{Power: Interval{500, 0, 1000}}}
	if _, err := r.Derive(Work{Duration: 59.2e9}); err == nil || !strings.Contains(err.Error(),
		"work was counted over 59.2s, energy over 1m0s") {
		t.Errorf("%v", err)
	}
	// Power that may be 0 gives work per watt without an upper bound.
	if d, err := r.Derive(Work{Duration: 60e9, Bytes: 1e9}); err != nil || d.RatePerWatt.High != math.MaxFloat64 {
		t.Errorf("%v, %v", err, d.RatePerWatt)
	}
}

func TestAboveIdle(t *testing.T) {
	load := Result{Estimate: &Estimate{Power: Interval{500, 490, 510}}}
	idle := Result{Estimate: &Estimate{Power: Interval{200, 195, 205}}}
	if got, err := load.AboveIdle(idle); err != nil || !close_(got, 300, 285, 315) {
		t.Errorf("%v, %v", got, err)
	}
}

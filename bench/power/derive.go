// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Work is the work that was done in the window.
type Work struct {
	// Duration is the time in which it was counted, ns.
	Duration int64 `json:"durationNs"`
	// Bytes by the counters that BytesFrom names. BytesError is how many of them may belong
	// outside the window: a card that updates its counters once a second is off by a second of
	// traffic.
	Bytes      uint64 `json:"bytes"`
	BytesError uint64 `json:"bytesError,omitempty"`
	BytesFrom  string `json:"bytesFrom,omitempty"`
	// Requests answered in the window, 0 if not counted.
	Requests uint64 `json:"requests,omitempty"`
	// SLA that held while the work was done, such as "P99 ≤ 1 ms". "at an SLA" means that this
	// work is the highest rate that met it, which only the caller knows.
	SLA string `json:"sla,omitempty"`
}

// Derived has quantities from Work and its energy. A nil one was not counted.
type Derived struct {
	Work Work `json:"work"`
	// Rate of the bytes, Gbit/s (10^9 bit).
	Rate *Interval `json:"rateGbitPerSecond,omitempty"`
	// RatePerWatt is Gbit/s per W, which is Gbit per J.
	RatePerWatt      *Interval `json:"gbitPerSecondPerWatt,omitempty"`
	JoulesPerRequest *Interval `json:"joulesPerRequest,omitempty"`
	RequestsPerJoule *Interval `json:"requestsPerJoule,omitempty"`
}

// maxMismatch is how far the windows of work and energy may differ in length.
const maxMismatch = 0.01

// ErrNotMeasured is wrapped by errors about Results without an Estimate.
var ErrNotMeasured = errors.New("power not measured")

// Derive divides work by energy. It refuses when there is no Estimate, and
// when the work was counted over a window of another length.
func (r Result) Derive(w Work) (Derived, error) {
	d := Derived{Work: w}
	if r.Estimate == nil {
		return d, fmt.Errorf("%w: %s", ErrNotMeasured, r.NotMeasured)
	}
	if w.Duration <= 0 || math.Abs(float64(w.Duration-r.Duration)) > maxMismatch*float64(r.Duration) {
		return d, fmt.Errorf("power: work was counted over %v, energy over %v: want the same window to %v %%",
			time.Duration(w.Duration), time.Duration(r.Duration), maxMismatch*100)
	}
	seconds := float64(w.Duration) / 1e9
	if w.Bytes > 0 {
		b, e := float64(w.Bytes), float64(w.BytesError)
		rate := Interval{b, max(b-e, 0), b + e}.times(8 / 1e9 / seconds)
		per := rate.over(r.Power)
		d.Rate, d.RatePerWatt = &rate, &per
	}
	if n := float64(w.Requests); n > 0 {
		// Power times duration, not Energy: the windows may differ slightly in length.
		each := r.Power.times(seconds / n)
		per := Interval{1, 1, 1}.over(each)
		d.JoulesPerRequest, d.RequestsPerJoule = &each, &per
	}
	return d, nil
}

// AboveIdle returns r's mean power minus idle's, in W. It treats the two intervals as
// independent bounds, although errors that both share cancel.
func (r Result) AboveIdle(idle Result) (Interval, error) {
	for _, x := range []Result{r, idle} {
		if x.Estimate == nil {
			return Interval{}, fmt.Errorf("%w: %s", ErrNotMeasured, x.NotMeasured)
		}
	}
	p, q := r.Power, idle.Power
	return Interval{p.Value - q.Value, p.Low - q.High, p.High - q.Low}, nil
}

func (i Interval) times(k float64) Interval { return Interval{i.Value * k, i.Low * k, i.High * k} }

// over divides by positive d. If d's low end is 0, the quotient has no upper bound; over then
// uses the largest number, which JSON can represent.
func (i Interval) over(d Interval) Interval {
	q := Interval{Value: i.Value / d.Value, Low: i.Low / d.High, High: math.MaxFloat64}
	if d.Low > 0 {
		q.High = i.High / d.Low
	}
	return q
}

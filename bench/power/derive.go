// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Work is the work that the host did in the window.
type Work struct {
	// Duration is the time in which the work was counted, ns.
	Duration int64 `json:"durationNs"`
	// Bytes were counted by the counters that BytesFrom names. BytesError is how many of them may
	// belong to a time outside the window. For example, a card that updates its counters once a second
	// can be wrong by the bytes of one second.
	Bytes      uint64 `json:"bytes"`
	BytesError uint64 `json:"bytesError,omitempty"`
	BytesFrom  string `json:"bytesFrom,omitempty"`
	// Requests is the number of requests answered in the window; 0 if not counted.
	Requests uint64 `json:"requests,omitempty"`
	// SLA is the limit that was met during the work, such as "P99 ≤ 1 ms". To report "Gbit/s per W at
	// an SLA", the work must be the highest rate that meets the SLA. Only the caller knows whether it
	// is.
	SLA string `json:"sla,omitempty"`
}

// Derived has quantities computed from Work and its energy. A field is nil if its work was not
// counted.
type Derived struct {
	Work Work `json:"work"`
	// Rate of the bytes, in Gbit/s (10^9 bit/s).
	Rate *Interval `json:"rateGbitPerSecond,omitempty"`
	// RatePerWatt is in Gbit/s per W, which is the same as Gbit per J.
	RatePerWatt      *Interval `json:"gbitPerSecondPerWatt,omitempty"`
	JoulesPerRequest *Interval `json:"joulesPerRequest,omitempty"`
	RequestsPerJoule *Interval `json:"requestsPerJoule,omitempty"`
}

// maxMismatch is the largest difference in length between the windows of work and of energy, as a
// share.
const maxMismatch = 0.01

// ErrNotMeasured is wrapped by errors about a Result that has no Estimate.
var ErrNotMeasured = errors.New("power not measured")

// Derive divides work by energy. It returns an error if r has no Estimate, or if the work was
// counted in a window of another length.
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
		// Power times the work's duration is used, not Energy, because the two windows may differ
		// slightly in length.
		each := r.Power.times(seconds / n)
		per := Interval{1, 1, 1}.over(each)
		d.JoulesPerRequest, d.RequestsPerJoule = &each, &per
	}
	return d, nil
}

// AboveIdle returns r's mean power minus idle's, in W. The bounds are too wide if both results have
// the same error, such as a wrong calibration: AboveIdle does not subtract common errors.
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

// over divides i by d. d.Value and d.High must be more than 0. If d.Low is not, the quotient has no
// upper bound; High is then the largest number that JSON can represent.
func (i Interval) over(d Interval) Interval {
	q := Interval{Value: i.Value / d.Value, Low: i.Low / d.High, High: math.MaxFloat64}
	if d.Low > 0 {
		q.High = i.High / d.Low
	}
	return q
}

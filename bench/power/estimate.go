// SPDX-License-Identifier: Apache-2.0

package power

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// minUpdates is the least number of updates of a sensor in a window, and of smallest steps of a
// counter. With fewer, more than a tenth of the result would depend on the window's ends.
const minUpdates = 10

const (
	// maxUnseen is the longest silence of the sensor before the window's end, as a share of the
	// window.
	maxUnseen = 0.1
	// maxMissed is the largest share of readings that may fail.
	maxMissed = 0.5
	// wide is the half-width, as a share of the value, from which the result has a warning.
	wide = 0.05
	// minSteps is the number of changes from which the smallest change counts as the resolution.
	minSteps = 10
	// finest is the smallest step between readings that can count as a resolution, in W or J.
	finest = 1e-6
)

// point is one reading of all sensors: power of gauges in W, energy of counters since the first
// reading in J.
type point struct {
	at     int64 // CLOCK_MONOTONIC in the middle of the reading, ns
	spread int64 // half the time that the reading took, ns
	v      []float64
}

// series is all readings of a meter.
type series struct {
	sensors  []Sensor
	points   []point
	from, to int64 // start and end of the window
	interval int64 // between readings, ns
}

// seconds returns the time between two times in ns.
func seconds(from, to int64) float64 { return float64(to-from) / 1e9 }

// settle replaces assumed resolutions and update intervals by those that the readings show. The
// readings' values can be too large, but not too small, so the bounds stay safe.
func (s *series) settle() {
	for i := range s.sensors {
		sn := &s.sensors[i]
		gap, step := s.changes(i)
		assumed := sn.UpdateIntervalFrom == FromDefault || sn.UpdateIntervalFrom == FromReadings
		// A counter changes with every update, because the host always uses power. A gauge may show the
		// same value twice.
		slower := sn.Quantity == Energy && gap > sn.UpdateInterval+s.interval
		if assumed && gap > 0 && (gap < sn.UpdateInterval || slower) {
			sn.UpdateInterval, sn.UpdateIntervalFrom = gap, FromReadings
		}
		r := &sn.ResolutionW
		if sn.Quantity == Energy {
			r = &sn.ResolutionJ
		}
		// The default is the coarsest resolution of this kind of sensor. Smaller steps between a gauge's
		// readings prove a finer one. The steps of a counter are the energy between updates and prove
		// nothing.
		if sn.ResolutionFrom == FromDefault && sn.Quantity == Power && step > 0 && step < *r {
			*r, sn.ResolutionFrom = step, FromReadings
		}
	}
}

// changes returns, for sensor i, the median time between changes and the smallest difference
// between successive readings. A result is 0 if there were too few changes.
func (s *series) changes(i int) (gap int64, step float64) {
	var gaps []int64
	var last int64
	steps := 0
	for k := 1; k < len(s.points); k++ {
		d := math.Abs(s.points[k].v[i] - s.points[k-1].v[i])
		if d < finest {
			continue
		}
		if steps++; step == 0 || d < step {
			step = d
		}
		if last != 0 {
			gaps = append(gaps, s.points[k].at-last)
		}
		last = s.points[k].at
	}
	if steps < minSteps {
		return 0, 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2], step
}

// slowest returns the longest update interval, in ns, of all sensors of a quantity.
func (s *series) slowest(quantity string) (u int64) {
	for _, sn := range s.sensors {
		if sn.Quantity == quantity {
			u = max(u, sn.UpdateInterval)
		}
	}
	return u
}

// tooShort is the error for a window that is too short.
type tooShort struct {
	reason string
	needed int64 // length that would be enough, ns
}

func (e *tooShort) Error() string {
	return fmt.Sprintf("%s: want a window of at least %v", e.reason, time.Duration(e.needed).Round(time.Millisecond))
}

// check returns an error if no estimate can be made from the series.
func (s *series) check(quantity string) error {
	window := s.to - s.from
	if u := s.slowest(quantity); window < minUpdates*u {
		return &tooShort{fmt.Sprintf("the window of %v holds %d updates of a sensor that has one every %v, want %d",
			time.Duration(window).Round(time.Microsecond), window/u, time.Duration(u), minUpdates), minUpdates * u}
	}
	if len(s.points) < 2 {
		return fmt.Errorf("%d readings, want at least 2", len(s.points))
	}
	if last := s.points[len(s.points)-1].at; float64(s.to-last) > maxUnseen*float64(window) {
		return fmt.Errorf("the source was silent for the last %v of %v",
			time.Duration(s.to-last).Round(time.Millisecond), time.Duration(window).Round(time.Millisecond))
	}
	return nil
}

// estimate computes the Estimate from all sensors of one quantity. accuracy is in percent.
func (s *series) estimate(quantity string, accuracy float64) (*Estimate, error) {
	if err := s.check(quantity); err != nil {
		return nil, err
	}
	e := &Estimate{Method: Counter}
	of := s.counter
	if quantity == Power {
		e.Method, of = Samples, s.gauge
	}
	joules := 0.0
	for i, sn := range s.sensors {
		if sn.Quantity != quantity {
			continue
		}
		j, u, err := of(i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sn.Name, err)
		}
		joules += j
		e.Uncertainty.ResolutionJ += u.ResolutionJ
		e.Uncertainty.EdgesJ += u.EdgesJ
		e.Uncertainty.SamplingJ += u.SamplingJ
		e.Uncertainty.GapsJ += u.GapsJ
	}
	e.Uncertainty.AccuracyJ = joules * accuracy / 100
	half := e.Uncertainty.sum()
	e.Energy = Interval{joules, max(joules-half, 0), joules + half}
	e.Power = e.Energy.times(1 / seconds(s.from, s.to))
	return e, nil
}

// counter returns the energy of counter i in the window.
//
// A reading at t is the counter's value at some time in [t-u, t], where u is the update interval,
// rounded down by less than a resolution. So the difference of two readings has two errors: less
// than one resolution, and the energy of a short time. This time is at most u plus the distance of
// the readings from the window's ends. The power in it is assumed to be the highest mean power
// between two readings.
func (s *series) counter(i int) (float64, Uncertainty, error) {
	sn, first, last := s.sensors[i], s.points[0], s.points[len(s.points)-1]
	total := last.v[i] - first.v[i]
	if total <= 0 {
		return 0, Uncertainty{}, fmt.Errorf("the counter did not move in %v",
			time.Duration(last.at-first.at).Round(time.Millisecond))
	}
	mean := total / seconds(first.at, last.at)
	if n := total / sn.ResolutionJ; n < minUpdates {
		return 0, Uncertainty{}, &tooShort{fmt.Sprintf("the counter moved by %.0f of its steps of %g J, want %d", n,
			sn.ResolutionJ, minUpdates),
			int64(minUpdates * sn.ResolutionJ / mean * 1e9)}
	}
	peak := mean
	for k := 1; k < len(s.points); k++ {
		// Readings must be some updates apart. Otherwise the step of a single update would look like high
		// power.
		if d := s.points[k].at - s.points[k-1].at; d >= minUpdates*sn.UpdateInterval {
			peak = max(peak, (s.points[k].v[i]-s.points[k-1].v[i])/(float64(d)/1e9))
		}
	}
	away := abs(s.from-first.at) + abs(s.to-last.at) + first.spread + last.spread + sn.UpdateInterval
	return mean * seconds(s.from, s.to), Uncertainty{
		ResolutionJ: sn.ResolutionJ,
		EdgesJ:      peak * float64(away) / 1e9,
	}, nil
}

// gauge returns the energy in the window by gauge i. It uses the trapezoid rule over the readings;
// the first and the last reading are extended to the window's ends.
//
// A reading at t is the power, or its mean, at some time in [t-2u, t], where u is the update
// interval. Because of this delay, the power at the window's ends is wrong by at most the range of
// the readings. Each reading is rounded by at most a resolution. Unlike a counter's, this error
// does not shrink in a longer window.
func (s *series) gauge(i int) (float64, Uncertainty, error) {
	sn := s.sensors[i]
	lo, hi := s.points[0].v[i], s.points[0].v[i]
	for _, p := range s.points {
		lo, hi = min(lo, p.v[i]), max(hi, p.v[i])
	}
	var joules float64
	var gaps, spread int64
	at, v := s.from, s.points[0].v[i]
	for _, p := range s.points {
		spread = max(spread, p.spread)
		if d := p.at - at; d > 2*max(s.interval, sn.UpdateInterval) {
			gaps += d
		}
		if p.at > s.from && at < s.to {
			to := min(p.at, s.to)
			// end is the power at the end of this piece, which may be cut by the window.
			end := v + (p.v[i]-v)*seconds(at, to)/seconds(at, p.at)
			joules += (v + end) / 2 * seconds(at, to)
			at = to
		}
		v = p.v[i]
	}
	if at < s.to {
		joules += v * seconds(at, s.to)
	}
	tail := max(s.to-s.points[len(s.points)-1].at, 0)
	u := Uncertainty{
		ResolutionJ: sn.ResolutionW * seconds(s.from, s.to),
		EdgesJ:      (hi - lo) * float64(2*sn.UpdateInterval+s.interval+2*spread+tail) / 1e9,
		GapsJ:       (hi - lo) * float64(gaps) / 1e9,
	}
	if !sn.Averages {
		u.SamplingJ = s.sampling(i) * seconds(s.from, s.to)
	}
	return joules, u, nil
}

// sampling returns the half-width in W of the 95 % interval of gauge i's mean power. It uses the
// differences between successive updates: the error of systematic sampling (Cochran, Sampling
// Techniques, 8.11; von Neumann's mean square successive difference). The mean is that of this
// window, not of a longer process. So slow changes, which the samples follow, are no error, but
// jumps between samples are. Readings between two updates count as one.
func (s *series) sampling(i int) float64 {
	var x []float64
	next := s.points[0].at
	for _, p := range s.points {
		if p.at >= next {
			x = append(x, p.v[i])
			next = p.at + s.sensors[i].UpdateInterval
		}
	}
	n := float64(len(x))
	if n < 3 {
		return 0 // check refuses a window with so few updates
	}
	ss := 0.0
	for k := 1; k < len(x); k++ {
		ss += (x[k] - x[k-1]) * (x[k] - x[k-1])
	}
	// Degrees of freedom for successive differences of independent values.
	nu := 2 * (n - 1) * (n - 1) / (3*n - 4)
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: nu}.Quantile(0.975) * math.Sqrt(ss/(2*(n-1))/n)
}

// timelineMax is the largest number of samples in a result's Timeline.
const timelineMax = 4096

// timeline returns the power over time, summed over all sensors of one quantity.
func (s *series) timeline(quantity string) []Sample {
	stride := (len(s.points) + timelineMax - 1) / timelineMax
	var out []Sample
	for k := range s.points {
		if k%max(stride, 1) != 0 || quantity == Energy && k < stride {
			continue
		}
		p, watts := s.points[k], 0.0
		for i, sn := range s.sensors {
			switch {
			case sn.Quantity != quantity:
			case quantity == Power:
				watts += p.v[i]
			default:
				b := s.points[k-stride]
				watts += (p.v[i] - b.v[i]) / seconds(b.at, p.at)
			}
		}
		out = append(out, Sample{p.at, watts})
	}
	return out
}

func abs(d int64) int64 { return max(d, -d) }

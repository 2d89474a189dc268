// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/niclane/niclane/bench/part/thread"
)

// device is a source whose sensors were found and can be read. Each kind of source implements it.
type device interface {
	// read returns one value per sensor, in the source's own counts.
	read(ctx context.Context) ([]float64, error)
	close(ctx context.Context) error
}

// gear is a sensor and how to convert its counts.
type gear struct {
	Sensor
	unit float64 // size of one count, in W or J
	wrap float64 // count at which a counter restarts from 0; 0: never
	// guess says that wrap is not documented. If a step back is taken for such a wrap, the result says
	// that it was assumed.
	guess bool
}

// maxPoints limits the memory of a meter. When a meter has this many points, it drops every second
// one and doubles the interval.
const maxPoints = 1 << 16

// surge limits the power that a wrap would mean, as a multiple of the highest power seen before. If
// the power is higher, the counter was reset.
const surge = 10

// meter reads a device repeatedly until it is stopped.
type meter struct {
	dev     device
	prov    Provenance
	gears   []gear
	timeout time.Duration

	from     int64
	interval time.Duration
	points   []point
	raw      []float64 // counts of the last reading
	peak     []float64 // highest power between two readings of each counter, W
	broken   []string  // why each counter's series ended; "" if it did not
	wraps    int
	missed   int
	first    string // text of the first error
	warnings []string

	halt chan struct{} // Stop closes it, to end the reading
	done chan struct{} // closed when the reading has ended
}

// start takes the first reading. Then it reads in the background until Stop or the end of ctx. If
// the first reading fails, it closes dev.
func start(ctx context.Context, c Config, dev device, prov Provenance, gears []gear, warnings []string) (*meter,
	error) {
	m := &meter{
		dev: dev, prov: prov, gears: gears, warnings: warnings,
		timeout: time.Duration(c.Timeout), interval: time.Duration(c.Interval),
		peak: make([]float64, len(gears)), broken: make([]string, len(gears)),
		halt: make(chan struct{}), done: make(chan struct{}),
	}
	m.prov.Interval = c.Interval
	if c.AccuracyPercent > 0 {
		m.prov.AccuracyPercent, m.prov.AccuracyFrom = c.AccuracyPercent, FromConfig
	}
	for i := range m.gears {
		if c.UpdateInterval > 0 {
			m.gears[i].UpdateInterval, m.gears[i].UpdateIntervalFrom = c.UpdateInterval, FromConfig
		}
		m.gears[i].WrapJ = m.gears[i].wrap * m.gears[i].unit
	}
	if err := m.take(ctx); err != nil {
		return nil, errors.Join(err, m.close())
	}
	m.from = thread.Monotonic()
	go m.run(ctx)
	return m, nil
}

func (m *meter) run(ctx context.Context) {
	defer close(m.done)
	t := time.NewTicker(m.interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.halt:
			return
		case <-t.C:
		}
		if err := m.take(ctx); err != nil && ctx.Err() == nil {
			m.miss(err)
		}
		if len(m.points) >= maxPoints {
			m.thin()
			t.Reset(m.interval)
		}
	}
}

func (m *meter) miss(err error) {
	if m.missed++; m.first == "" {
		m.first = err.Error()
	}
}

// thin drops every second point.
func (m *meter) thin() {
	n := 0
	for i := 0; i < len(m.points); i += 2 {
		m.points[n] = m.points[i]
		n++
	}
	m.points, m.interval = m.points[:n], 2*m.interval
}

// take reads the device and appends a point.
func (m *meter) take(ctx context.Context) error {
	before := thread.Monotonic()
	raw, err := m.dev.read(ctx)
	after := thread.Monotonic()
	if err != nil {
		return err
	}
	if len(raw) != len(m.gears) {
		return fmt.Errorf("%d values of %d sensors", len(raw), len(m.gears))
	}
	for i, v := range raw {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return fmt.Errorf("%s: reads %v", m.gears[i].Name, v)
		}
	}
	p := point{at: before + (after-before)/2, spread: (after - before + 1) / 2, v: make([]float64, len(raw))}
	var last *point
	if len(m.points) > 0 {
		last = &m.points[len(m.points)-1]
		// Two readings at the same time would cause a division by zero.
		if p.at <= last.at {
			return errors.New("two readings at the same time")
		}
	}
	for i, g := range m.gears {
		if g.Quantity == Power {
			p.v[i] = raw[i] * g.unit
		} else if last != nil {
			p.v[i] = last.v[i] + m.advance(i, raw[i], seconds(last.at, p.at))
		}
	}
	m.raw, m.points = raw, append(m.points, p)
	return nil
}

// advance returns the energy, in J, by which counter i has moved in dt seconds.
func (m *meter) advance(i int, now, dt float64) float64 {
	g := m.gears[i]
	d := now - m.raw[i]
	if d < 0 {
		wrapped := d + g.wrap
		power := wrapped * g.unit / dt
		if wrapped < 0 || wrapped > g.wrap/2 || m.peak[i] > 0 && power > surge*m.peak[i] || g.guess && m.peak[i] == 0 {
			m.broken[i] = fmt.Sprintf("the counter went back from %.0f to %.0f, which no wrap explains: reset?",
				m.raw[i], now)
			return 0
		}
		if m.wraps++; g.guess {
			m.warnings = append(m.warnings, fmt.Sprintf("%s: went back from %.0f to %.0f; taken as a wrap at %.0f, "+
				"which its driver does not document", g.Name, m.raw[i], now, g.wrap))
		}
		d = wrapped
	}
	j := d * g.unit
	m.peak[i] = max(m.peak[i], j/dt)
	return j
}

// close closes the device. It waits at most the time of two exchanges.
func (m *meter) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*m.timeout)
	defer cancel()
	return m.dev.close(ctx)
}

// Stop ends the window, takes the last reading and closes the source. It takes the last reading,
// within the timeout, even if ctx has ended, so that an interrupted measurement has a result. Stop
// must be called once.
func (m *meter) Stop(ctx context.Context) Result {
	to := thread.Monotonic()
	close(m.halt)
	<-m.done
	ctx = context.WithoutCancel(ctx)
	if err := m.take(ctx); err != nil {
		m.miss(err)
	}
	if err := m.close(); err != nil {
		m.warnings = append(m.warnings, fmt.Sprintf("closing: %v", err))
	}
	return m.result(to)
}

// result returns the result of the window that ends at to.
func (m *meter) result(to int64) Result {
	s := &series{points: m.points, from: m.from, to: to, interval: int64(m.interval)}
	r := Result{
		Provenance: m.prov, StartMono: m.from, Duration: to - m.from,
		Readings: len(m.points), Missed: m.missed, Wraps: m.wraps, FirstError: m.first,
		Warnings: m.warnings,
	}
	for _, g := range m.gears {
		s.sensors = append(s.sensors, g.Sensor)
	}
	s.settle()
	r.Provenance.Sensors = s.sensors

	estimates := map[string]*Estimate{}
	var reasons []error
	for _, q := range []string{Energy, Power} {
		if s.slowest(q) == 0 {
			continue // the source has no sensors of this quantity
		}
		e, err := m.estimate(s, q)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		estimates[q] = e
	}
	r.choose(estimates, s)
	r.explain(reasons)
	r.warn(s)
	return r
}

func (m *meter) estimate(s *series, quantity string) (*Estimate, error) {
	if n := m.missed + len(m.points); float64(m.missed) > maxMissed*float64(n) {
		return nil, fmt.Errorf("%d of %d readings failed, the first with: %s", m.missed, n, m.first)
	}
	if quantity == Energy {
		for i, reason := range m.broken {
			if reason != "" {
				return nil, fmt.Errorf("%s: %s", m.gears[i].Name, reason)
			}
		}
	}
	e, err := s.estimate(quantity, m.prov.AccuracyPercent)
	if err != nil && m.first != "" {
		err = fmt.Errorf("%w (%d readings failed, the first with: %s)", err, m.missed, m.first)
	}
	return e, err
}

// choose makes the narrower estimate the result's Estimate and the other one its CrossCheck.
func (r *Result) choose(estimates map[string]*Estimate, s *series) {
	a, b, quantity := estimates[Energy], estimates[Power], Energy
	if a == nil || b != nil && b.Uncertainty.sum() < a.Uncertainty.sum() {
		a, b, quantity = b, a, Power
	}
	if a == nil {
		quantity = s.sensors[0].Quantity
	}
	r.Estimate, r.CrossCheck = a, b
	r.Timeline = s.timeline(quantity)
	if u := s.slowest(quantity); u > 0 {
		r.Updates = r.Duration / u
	}
}

// explain sets NotMeasured from the reasons.
func (r *Result) explain(reasons []error) {
	for _, err := range reasons {
		var short *tooShort
		if errors.As(err, &short) && (r.Needed == 0 || short.needed < r.Needed) {
			r.Needed = short.needed
		}
	}
	if r.Estimate == nil {
		r.NotMeasured = errors.Join(reasons...).Error()
		return
	}
	r.Needed = 0
	for _, err := range reasons {
		r.Warnings = append(r.Warnings, fmt.Sprintf("no cross-check: %v", err))
	}
}

// warn adds warnings about what makes the estimate uncertain.
func (r *Result) warn(s *series) {
	e := r.Estimate
	if e == nil {
		return
	}
	if c := r.CrossCheck; c != nil && (c.Energy.High < e.Energy.Low || c.Energy.Low > e.Energy.High) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the source contradicts itself: %.0f to %.0f J by its %s, %.0f "+
			"to %.0f J by its %s",
			e.Energy.Low, e.Energy.High, e.Method, c.Energy.Low, c.Energy.High, c.Method))
	}
	if r.Provenance.AccuracyPercent == 0 {
		r.Warnings = append(r.Warnings, "the sensor's accuracy is not stated (accuracy): the interval is that of "+
			"resolution, timing and sampling alone")
	}
	if r.Missed > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d of %d readings failed, the first with: %s", r.Missed,
			r.Missed+r.Readings, r.FirstError))
	}
	r.warnWide()
}

// warnWide warns of a wide interval. It names the window that would make the interval narrow, if
// such a window exists.
func (r *Result) warnWide() {
	e, u := r.Estimate, r.Uncertainty
	half := u.sum() / e.Energy.Value
	if !(half > wide) {
		return
	}
	// These parts grow with the window, so they stay the same share of the energy.
	stays := u.AccuracyJ
	if e.Method == Samples {
		stays += u.ResolutionJ
	}
	if share := stays / e.Energy.Value; share >= wide {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the interval is ±%.1f %% wide, and ±%.1f %% would remain in "+
			"any window: the sensor is too coarse", 100*half, 100*share))
		return
	}
	k := (u.sum() - stays) / (wide*e.Energy.Value - stays)
	if u.SamplingJ > 0 { // shrinks only with the square root of the window's length
		k *= k
	}
	r.Needed = int64(float64(r.Duration) * k)
	r.Warnings = append(r.Warnings, fmt.Sprintf("the interval is ±%.1f %% wide: ±%.0f %% takes a window of about %v",
		100*half, 100*wide, time.Duration(r.Needed).Round(time.Second)))
}

// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const second = int64(time.Second)

// sampled reads power(t) (t in ns) every interval from 0 to end. It reads like a gauge: the value
// is updated every s.UpdateInterval and rounded to the resolution.
func sampled(power func(t int64) float64, s Sensor, interval, end int64) *series {
	out := &series{sensors: []Sensor{s}, from: 0, to: end, interval: interval}
	for t := -interval / 2; t <= end+interval/2; t += interval {
		at := t - t%s.UpdateInterval
		v := power(at)
		if s.Averages {
			v = 0
			for k := range int64(50) {
				v += power(at-s.UpdateInterval*k/50) / 50
			}
		}
		v = math.Floor(v/s.ResolutionW) * s.ResolutionW
		out.points = append(out.points, point{at: t, v: []float64{v}})
	}
	return out
}

// counted reads the energy of power(t) like a counter: integrated in steps of 1 ms, and rounded
// down to the resolution. phase shifts the counter's updates.
func counted(power func(t int64) float64, s Sensor, interval, end, phase int64) *series {
	out := &series{sensors: []Sensor{s}, from: 0, to: end, interval: interval}
	const step = int64(time.Millisecond)
	start := -2 * s.UpdateInterval
	joules, shown, t := 0.0, 0.0, start
	for at := -interval / 2; at <= end+interval; at += interval {
		for ; t < at; t += step {
			joules += power(t) * float64(step) / 1e9
			if (t-start+phase)%s.UpdateInterval < step {
				shown = math.Floor(joules/s.ResolutionJ) * s.ResolutionJ
			}
		}
		out.points = append(out.points, point{at: at, v: []float64{shown}})
	}
	return out
}

// truth returns the energy of power over the window, integrated in steps of 1 ms.
func truth(power func(t int64) float64, end int64) (joules float64) {
	const step = int64(time.Millisecond)
	for t := int64(0); t < end; t += step {
		joules += power(t) * float64(step) / 1e9
	}
	return joules
}

var loads = map[string]func(t int64) float64{
	"constant": func(int64) float64 { return 312.4 },
	"ramp":     func(t int64) float64 { return 200 + 5*float64(t)/1e9 },
	"step": func(t int64) float64 {
		if t > 17*second {
			return 420.2
		}
		return 180.7
	},
	"wave": func(t int64) float64 { return 300 + 80*math.Sin(float64(t)/2.3e9) },
}

// TestBoundsHoldTheTruth checks that the true power lies within the stated bounds.
func TestBoundsHoldTheTruth(t *testing.T) {
	for name, load := range loads {
		for _, s := range []Sensor{
			{Quantity: Power, ResolutionW: 1, UpdateInterval: second},
			{Quantity: Power, ResolutionW: 1, UpdateInterval: second, Averages: true},
			{Quantity: Power, ResolutionW: 10, UpdateInterval: 3 * second, Averages: true},
			{Quantity: Energy, ResolutionJ: 1.0 / 16384, UpdateInterval: second / 1000},
			{Quantity: Energy, ResolutionJ: 100, UpdateInterval: 2 * second},
			{Quantity: Energy, ResolutionJ: 360, UpdateInterval: second},
		} {
			for _, end := range []int64{31 * second, 60 * second} {
				for phase := range int64(4) {
					var sr *series
					if s.Quantity == Power {
						sr = sampled(load, s, second*(1+phase)/2, end)
					} else {
						sr = counted(load, s, second*(1+phase)/2, end, phase*s.UpdateInterval/4)
					}
					e, err := sr.estimate(s.Quantity, 0)
					if err != nil {
						t.Fatalf("%s %+v: %v", name, s, err)
					}
					want := truth(load, end)
					if e.Energy.Low > want || e.Energy.High < want {
						t.Errorf("%s, %s every %v to %v, phase %d: %.1f J, want %.1f inside (%+v)", name, s.Quantity,
							time.Duration(s.UpdateInterval), s.ResolutionW+s.ResolutionJ, phase, e.Energy, want,
							e.Uncertainty)
					}
					// Without this limit, very wide bounds would always pass.
					if half := e.Uncertainty.sum() / want; half > 0.35 {
						t.Errorf("%s %+v: ±%.0f %%", name, s, half*100)
					}
				}
			}
		}
	}
}

// TestSamplingInterval reads a gauge of instants, with loads that vary at several speeds. In about
// 95 of 100 runs, the interval must contain the true mean power.
func TestSamplingInterval(t *testing.T) {
	const step, end = second / 100, 60 * second
	for _, tau := range []float64{0.01, 0.5, 5} { // time constant of the load, s
		rng := rand.New(rand.NewPCG(7, uint64(tau*100)))
		rho := math.Exp(-float64(step) / 1e9 / tau)
		const runs = 300
		held, half := 0, 0.0
		for range runs {
			sr := &series{sensors: []Sensor{{Quantity: Power, ResolutionW: 1e-3, UpdateInterval: second}}, to: end,
				interval: second}
			x, true_ := rng.NormFloat64(), 0.0
			for at := int64(0); at <= end; at += step {
				x = rho*x + math.Sqrt(1-rho*rho)*rng.NormFloat64()
				if at%second == 0 {
					sr.points = append(sr.points, point{at: at, v: []float64{300 + 20*x}})
				}
				true_ += (300 + 20*x) * float64(step) / 1e9
			}
			j, u, err := sr.gauge(0)
			if err != nil {
				t.Fatal(err)
			}
			half += u.SamplingJ / runs
			if math.Abs(j-true_) <= u.SamplingJ {
				held++
			}
		}
		if held < runs*90/100 || half/(300*60) > 0.03 {
			t.Errorf("correlated over %v s: %d of %d intervals hold the mean, want at least 90 %%; ±%.0f J", tau, held,
				runs, half)
		}
	}
}

func TestTooShort(t *testing.T) {
	gauge := Sensor{Name: "g", Quantity: Power, ResolutionW: 1, UpdateInterval: 3 * second}
	counter := Sensor{Name: "c", Quantity: Energy, ResolutionJ: 3600, UpdateInterval: second}
	for _, tt := range []struct {
		name   string
		s      *series
		want   string
		needed int64
	}{
		{"updates", sampled(loads["constant"], gauge, second, 20*second),
			"holds 6 updates of a sensor that has one every 3s, want 10: want a window of at least 30s", 30 * second},
		// At 312.4 W, the counter moves by one Wh every 11.5 s: 5 or 6 times in 60 s.
		{"steps", counted(loads["constant"], counter, second, 60*second, 0), "of its steps of 3600 J, want 10",
			115 * second},
	} {
		_, err := tt.s.estimate(tt.s.sensors[0].Quantity, 0)
		var short *tooShort
		if !errors.As(err, &short) || !strings.Contains(err.Error(), tt.want) ||
			math.Abs(float64(short.needed-tt.needed)) > 0.25*float64(tt.needed) {
			t.Errorf("%s: %v, want %q and %v", tt.name, err, tt.want, time.Duration(tt.needed))
		}
	}
}

// TestSilentAtTheEnd checks that a window is refused if the sensor falls silent before its end.
func TestSilentAtTheEnd(t *testing.T) {
	s := sampled(loads["constant"], Sensor{Quantity: Power, ResolutionW: 1, UpdateInterval: second}, second, 60*second)
	s.points = s.points[:50] // keeps 50 of 62 readings
	if _, err := s.estimate(Power, 0); err == nil || !strings.Contains(err.Error(),
		"the source was silent for the last 11.5s of 1m0s") {
		t.Errorf("%v", err)
	}
}

// TestSettle checks which values settle takes from the readings when the config has none.
func TestSettle(t *testing.T) {
	s := Sensor{Quantity: Power, ResolutionW: 0.1, UpdateInterval: 2 * second}
	sr := sampled(loads["wave"], s, second/2, 60*second)
	sr.sensors[0] = Sensor{Quantity: Power, ResolutionW: 1, ResolutionFrom: FromDefault, UpdateInterval: 10 * second,
		UpdateIntervalFrom: FromDefault}
	sr.settle()
	got := sr.sensors[0]
	if got.UpdateInterval != 2*second || got.UpdateIntervalFrom != FromReadings || got.ResolutionW < 0.1-1e-9 ||
		got.ResolutionW > 1 {
		t.Errorf("%+v, want updates every 2 s and a resolution of 0.1 to 1 W", got)
	}
	// A constant load shows neither value, so the assumed values stay.
	sr = sampled(loads["constant"], s, second/2, 60*second)
	sr.sensors[0].UpdateInterval, sr.sensors[0].UpdateIntervalFrom = 10*second, FromDefault
	sr.settle()
	if got := sr.sensors[0]; got.UpdateInterval != 10*second || got.UpdateIntervalFrom != FromDefault {
		t.Errorf("%+v, want what was assumed", got)
	}
	// This counter updates more slowly than assumed.
	c := Sensor{Quantity: Energy, ResolutionJ: 0.1, UpdateInterval: 3 * second}
	sr = counted(loads["wave"], c, second/2, 60*second, 0)
	sr.sensors[0].UpdateInterval, sr.sensors[0].UpdateIntervalFrom = second/1000, FromDefault
	sr.settle()
	if got := sr.sensors[0]; got.UpdateInterval != 3*second || got.UpdateIntervalFrom != FromReadings {
		t.Errorf("%+v, want updates every 3 s", got)
	}
}

// fake is a device whose readings a test chooses.
type fake struct{ read_ func() ([]float64, error) }

func (f fake) read(context.Context) ([]float64, error) { return f.read_() }
func (f fake) close(context.Context) error             { return nil }

// feed gives a meter successive readings, one second apart.
func feed(t *testing.T, g gear, raw ...float64) *meter {
	t.Helper()
	var next float64
	m := &meter{dev: fake{func() ([]float64, error) { return []float64{next}, nil }}, gears: []gear{g},
		peak: make([]float64, 1), broken: make([]string, 1)}
	for _, v := range raw {
		next = v
		for k := range m.points { // move the points so that a second seems to have passed
			m.points[k].at -= second
		}
		if err := m.take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestCounterSteps(t *testing.T) {
	g := gear{Sensor: Sensor{Name: "c", Quantity: Energy}, unit: 1, wrap: 1 << 32}
	guess := g
	guess.guess = true
	for _, tt := range []struct {
		name   string
		g      gear
		raw    []float64
		joules float64
		wraps  int
		broken bool
	}{
		{"forward", g, []float64{100, 300, 600}, 500, 0, false},
		{"wrap", g, []float64{1<<32 - 100, 1<<32 - 50, 30}, 130, 1, false},
		{"reset", g, []float64{1 << 31, 1<<31 + 10, 5}, 0, 0, true},
		{"reset near the top", g, []float64{4000000000, 4000000200, 5}, 0, 0, true},
		{"guess without a history", guess, []float64{1<<32 - 100, 50}, 0, 0, true},
		{"guess", guess, []float64{1<<32 - 200, 1<<32 - 100, 50}, 250, 1, false},
		{"no wrap", gear{Sensor: g.Sensor, unit: 1}, []float64{100, 90}, 0, 0, true},
	} {
		m := feed(t, tt.g, tt.raw...)
		got := m.points[len(m.points)-1].v[0]
		if (m.broken[0] != "") != tt.broken || !tt.broken && (got != tt.joules || m.wraps != tt.wraps) {
			t.Errorf("%s: %v J, %d wraps, broken %q", tt.name, got, m.wraps, m.broken[0])
		}
	}
}

// TestThin checks that the points of a long measurement stay within maxPoints and keep the first
// and the last.
func TestThin(t *testing.T) {
	m := &meter{interval: time.Second}
	for i := range 9 {
		m.points = append(m.points, point{at: int64(i)})
	}
	m.thin()
	if len(m.points) != 5 || m.points[0].at != 0 || m.points[4].at != 8 || m.interval != 2*time.Second {
		t.Errorf("%d points, %v", len(m.points), m.interval)
	}
}

func TestTimeline(t *testing.T) {
	s := sampled(loads["ramp"], Sensor{Quantity: Power, ResolutionW: 1, UpdateInterval: 1e6}, 1e6, 20*second)
	if n := len(s.timeline(Power)); n > timelineMax || n < timelineMax/2 {
		t.Errorf("%d samples", n)
	}
	c := counted(loads["constant"], Sensor{Quantity: Energy, ResolutionJ: 1e-3, UpdateInterval: 1e6}, second, 20*second,
		0)
	for _, p := range c.timeline(Energy)[1:] {
		if math.Abs(p.Power-312.4) > 1 {
			t.Errorf("%v W at %v, want 312.4", p.Power, p.Mono)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/live/waits"
)

// A Meter measures the services. Its snapshots are cumulative. *waits.Collector is one.
type Meter interface {
	Snapshot() (waits.Snapshot, error)
}

// RoundTrips measures the round trip times of the services' connections. Its histograms are cumulative.
// *roundtrip.Sampler is one.
type RoundTrips interface {
	Times() (map[string]*waits.Histogram, error)
}

// A Switcher makes the lanes of one variant at a time.
type Switcher interface {
	// Switch puts the lanes of a variant in the place of those of the variant before. Variant 0 is the
	// host without the trial's lanes. It returns when every step was made and read back. After an error
	// the lanes may be of either variant.
	Switch(ctx context.Context, variant int) error
	// Check returns an error if the lanes are not as Switch left them: something else has changed or
	// undone them, or a device is gone.
	Check(ctx context.Context) error
	// Undo restores the host as it was before the trial. It is called however the trial ends, also
	// twice.
	Undo(ctx context.Context) error
}

// A Clock tells and waits for times. The zero value of the Config uses the real one.
type Clock interface {
	Now() time.Time
	// Sleep returns when d is over, or with the error of ctx when that ends.
	Sleep(ctx context.Context, d time.Duration) error
}

// A Variant is the host without the trial's lanes, or with those of a file.
type Variant struct {
	Name, Title string
	// Lanes is the text of the lanes file, Plan that of its steps; "" for the first variant.
	Lanes, Plan string
}

// A Service is one that the Meter measures.
type Service struct {
	Name string // as in waits.Service
	// Neighbour says that no lane of the trial is for this service. It may have no traffic.
	Neighbour bool
}

// Config is the input of Run.
type Config struct {
	Title, Niclane string
	// Variants has the host without the trial's lanes first, then at least one other.
	Variants []Variant
	Services []Service
	Meter    Meter
	// RoundTrips may be nil: round trip times are not measured.
	RoundTrips RoundTrips
	Switcher   Switcher
	Clock      Clock
	// For is how long the trial takes, about, but at least stats.MinWilcoxon rounds. Window is the length of
	// a window, Settle the least time between a switch and a window. All are positive.
	For, Window, Settle time.Duration
	Seed                uint64
	// Trial has what the result says of the trial; Run fills in the rest.
	Trial       result.Trial
	Environment result.Environment
	// Progress is called before each window, and before it for the time of settling; nil: it is not.
	Progress func(Progress)
}

// A Progress says what a trial is doing.
type Progress struct {
	Window, Windows int // number of the window, from 1, and how many there will be about
	Variant         string
	Settling        bool          // the lanes were switched, and the window has not begun
	Left            time.Duration // of the whole trial, about
	// Result is what was measured so far. The receiver must not change it.
	Result *result.Result
}

// Phases of a trial that result.Partial names.
const (
	PhaseStart   = "start"
	PhaseWindows = "windows"
)

// The phrases of Run's errors.
var (
	// ErrInterrupted: the context of Run has ended.
	ErrInterrupted = errors.New("interrupted")
	// ErrNoTraffic: no request was answered.
	ErrNoTraffic = errors.New("no traffic")
	// ErrUnfollowed: so small a share of the requests is followed that windows have hardly any.
	ErrUnfollowed = errors.New("too few requests are followed")
	// ErrRestarted: a service has new processes.
	ErrRestarted = errors.New("restarted")
)

// A LeftError means that the host is not, or not known to be, as it was before the trial.
type LeftError struct{ Err error }

// Error implements error.
func (e *LeftError) Error() string { return "the lanes could not be taken away: " + e.Err.Error() }

// Unwrap implements errors.Unwrap.
func (e *LeftError) Unwrap() error { return e.Err }

// undoTime limits the undoing at the end.
const undoTime = 2 * time.Minute

type runner struct {
	Config
	r       *result.Result
	began   time.Time
	now     int // the variant in force
	windows int
	who     map[string][]int   // the services' processes at the start
	rates   map[string]float64 // their requests per second at the start
}

// Run measures. If it ends early, the result has Partial, and the error is the reason. The result is
// nil if nothing was measured. In any case the host is as before, or the error says what is left.
func Run(ctx context.Context, c Config) (*result.Result, error) {
	if c.Clock == nil {
		c.Clock = clock{}
	}
	if c.RoundTrips == nil {
		c.RoundTrips = noRoundTrips{}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	x := &runner{Config: c, began: c.Clock.Now()}
	x.r = x.empty()
	phase, err := x.all(ctx)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if failed := c.Switcher.Undo(undo); failed != nil {
		err = errors.Join(err, &LeftError{failed})
	}
	x.r.Took = int64(c.Clock.Now().Sub(x.began))
	if err == nil {
		return x.r, nil
	}
	x.r.Partial = &result.Partial{Phase: phase, Reason: strings.ReplaceAll(err.Error(), "\n", "; ")}
	if len(x.r.Windows) == 0 {
		return nil, err
	}
	return x.r, err
}

// empty returns the result before the first window.
func (x *runner) empty() *result.Result {
	t := x.Trial
	t.Seed, t.Settle = x.Seed, int64(x.Settle)
	r := &result.Result{
		Schema: result.Schema, Title: x.Title, Niclane: x.Niclane, Started: x.began.UTC().Round(time.Second), Trial: &t,
		Environment: x.Environment, Server: result.Server{Kind: experiment.KindRunning, Proof: "none: live traffic"},
		Experiment: &experiment.Experiment{Title: x.Title, Base: x.Variants[0].Name,
			Server: experiment.Server{Kind: experiment.KindRunning},
			Load:   experiment.Load{Mode: result.Live, Window: int64(x.Window)}, TimeLimit: int64(x.For)},
	}
	for _, v := range x.Variants {
		r.Variants = append(r.Variants, result.Variant{Name: v.Name, Title: v.Title, Lanes: v.Lanes, Plan: v.Plan})
		r.Experiment.Variants = append(r.Experiment.Variants,
			experiment.Variant{Name: v.Name, Title: v.Title, Lanes: v.Lanes})
	}
	return r
}

// all does everything but the undoing at the end.
func (x *runner) all(ctx context.Context) (phase string, err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = ErrInterrupted
		}
	}()
	if err := x.start(ctx); err != nil {
		return PhaseStart, err
	}
	o := newOrder(len(x.Variants), x.Seed)
	x.began = x.Clock.Now()
	for round := 0; x.another(round); round++ {
		for _, v := range o.next() {
			if err := x.window(ctx, round, v); err != nil {
				return PhaseWindows, err
			}
		}
		for i := range x.r.Points {
			x.r.Points[i].Rounds = round + 1
		}
	}
	return "", nil
}

// start looks which services have traffic, before anything is changed.
func (x *runner) start(ctx context.Context) error {
	a, err := x.Meter.Snapshot()
	if err != nil {
		return err
	}
	if err := x.Clock.Sleep(ctx, max(x.Window, x.Settle)); err != nil {
		return err
	}
	b, err := x.Meter.Snapshot()
	if err != nil {
		return err
	}
	d := b.Sub(a)
	var silent []string
	x.who, x.rates = map[string][]int{}, map[string]float64{}
	share := followed(d)
	for _, s := range x.Services {
		if m := find(d, s.Name); m != nil && m.Requests > 0 {
			x.who[s.Name] = m.Processes
			x.rates[s.Name] = float64(all(max(m.Seen, m.Requests), share)) / d.Duration.Seconds()
			x.r.Points = append(x.r.Points, result.Point{Mode: result.Live, Service: s.Name, Neighbour: s.Neighbour})
			continue
		}
		silent = append(silent, s.Name)
	}
	x.Services = slices.DeleteFunc(x.Services, func(s Service) bool { return slices.Contains(silent, s.Name) })
	if !slices.ContainsFunc(x.Services, func(s Service) bool { return !s.Neighbour }) {
		if share < 0.1 {
			return unfollowed(share)
		}
		return fmt.Errorf("%w: no request to %s was answered in %v, so there is nothing to measure", ErrNoTraffic,
			strings.Join(silent, ", "), d.Duration.Round(100*time.Millisecond))
	}
	for _, name := range silent {
		x.r.Warnings = append(x.r.Warnings, fmt.Sprintf("%s is not measured: it had no request before the trial", name))
	}
	x.r.Trial.Measure = waits.Host.String()
	if !slices.ContainsFunc(d.Services, func(s waits.Service) bool { return s.Waits[waits.Host].Count() > 0 }) {
		x.r.Trial.Measure = waits.App.String()
	}
	for stage, why := range b.Missing {
		if x.r.Trial.Missing == nil {
			x.r.Trial.Missing = map[string]string{}
		}
		x.r.Trial.Missing[stage.String()] = why
	}
	return nil
}

// leastFollowed is the number of followed requests in a window below which none means nothing.
const leastFollowed = 20

func unfollowed(share float64) error {
	return fmt.Errorf("%w: the meter follows them in %.2g %% of the time, to cost little", ErrUnfollowed, 100*share)
}

// silence explains that no request of a service was answered in a time with a variant in force.
func (x *runner) silence(s Service, variant int, took time.Duration, share float64, when string) error {
	if x.rates[s.Name]*took.Seconds()*share < leastFollowed {
		return unfollowed(share)
	}
	return fmt.Errorf("%w: no request to %s was answered in %v %s %s: its traffic has ended, or the lanes cut it off",
		ErrNoTraffic, s.Name, took.Round(100*time.Millisecond), when, x.Variants[variant].Name)
}

// another reports whether there is time for one more round. With fewer than stats.MinWilcoxon there is no
// interval that needs no assumption, so there are as many in any case.
func (x *runner) another(round int) bool {
	return round < stats.MinWilcoxon ||
		x.Clock.Now().Sub(x.began)+time.Duration(len(x.Variants))*x.perWindow() <= x.For
}

// perWindow returns the time that a window takes, with switch and settling, by those so far.
func (x *runner) perWindow() time.Duration {
	if x.windows < len(x.Variants) {
		return x.Window + x.Settle
	}
	return x.Clock.Now().Sub(x.began) / time.Duration(x.windows)
}

func (x *runner) progress(variant int, settling bool) {
	left := max(0, x.For-x.Clock.Now().Sub(x.began))
	x.Progress(Progress{Window: x.windows + 1, Windows: x.windows + max(1, int(left/x.perWindow())),
		Variant: x.Variants[variant].Name, Settling: settling, Left: left, Result: x.r})
}

type noRoundTrips struct{}

func (noRoundTrips) Times() (map[string]*waits.Histogram, error) { return nil, nil }

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func (clock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

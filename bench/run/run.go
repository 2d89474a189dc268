// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/search"
	"github.com/niclane/niclane/lab/virtual"
)

// Options of Run.
type Options struct {
	// Version of niclane, for the result.
	Version string
	// Progress gets a line for each event; nil: none.
	Progress io.Writer
	// Save stores the result so far; nil: it is not stored. Run calls it at the end, and with a
	// result that is marked partial after each load point and search.
	Save func(*result.Result) error

	clocks func() (instants, error) // tests use another
}

// An Error says in which phase a run has failed, and why.
type Error struct {
	Phase string
	Err   error
}

func (e *Error) Error() string { return "phase " + e.Phase + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Phases of a run.
const (
	PhaseRaise    = "raise"
	PhaseServer   = "server"
	PhasePrefill  = "prefill"
	PhaseHost     = "host-noise"
	PhaseRepeats  = "repeats"
	PhaseSearch   = "search"
	PhaseSweep    = "sweep"
	PhaseSave     = "save"
	PhaseTeardown = "teardown"
)

// errTimeLimit ends a run at the file's time-limit.
var errTimeLimit = errors.New("the experiment's time-limit has passed")

// A runner has the state of one run.
type runner struct {
	e     *experiment.Experiment
	site  Site
	o     Options
	r     *result.Result
	phase string
	tell  progress
	began time.Time
	seed  uint64
	// serving is the variant for which the server was started.
	serving experiment.Variant
	// unsaved is set when a checkpoint has failed, so that the error is reported once.
	unsaved bool
}

// Run executes the experiment f at site. text is the text of f's file. Errors are of type *Error,
// joined if there are two. The result has what was measured, even after an error.
func Run(ctx context.Context, f *experiment.File, text string, site Site, o Options) (*result.Result, error) {
	e := f.Experiment
	if o.clocks == nil {
		o.clocks = clocks
	}
	run := &runner{e: e, site: site, o: o, began: time.Now(), tell: progress{out: o.Progress, now: time.Now}}
	run.r = &result.Result{
		Schema: result.Schema, Title: e.Title, Niclane: o.Version, Started: run.began.UTC().Round(time.Second),
		Text: text, Experiment: e, Environment: environment(machine.Describe()),
	}
	if virtual.Here() {
		run.r.Virtual, run.r.Environment.VirtualSeed = true, virtual.Seed()
		inVirtualTime(e)
	}
	for i, v := range e.Variants {
		run.r.Variants = append(run.r.Variants,
			result.Variant{Name: v.Name, Title: v.Title, Differences: differences(e, i)})
	}
	if e.TimeLimit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(e.TimeLimit), errTimeLimit)
		defer cancel()
	}
	for _, text := range []string{tried(e), warnsOnly(e)} {
		if text != "" {
			run.warnf("%s", text)
		}
	}
	err := run.all(ctx)
	if err != nil {
		if ctx.Err() != nil { // err is a consequence of the context's end
			err = context.Cause(ctx)
			if errors.Is(err, context.Canceled) {
				err = errors.New("interrupted")
			}
		}
		err = &Error{run.phase, err}
		run.r.Partial = &result.Partial{Phase: run.phase, Reason: errors.Unwrap(err).Error()}
	}
	if err != nil {
		run.r.Logs = site.Logs()
	}
	if len(run.r.Windows) > 0 {
		if failed := run.save(); failed != nil && !run.unsaved {
			err = errors.Join(err, &Error{PhaseSave, failed})
		}
	}
	// The context may have ended, but everything must still be removed.
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if failed := site.Down(down); failed != nil {
		err = errors.Join(err, &Error{PhaseTeardown, failed})
	}
	return run.r, err
}

func (run *runner) all(ctx context.Context) error {
	e := run.e
	_, windows := experiment.Windows(e)
	run.tell.total = windows
	if s := e.Sweep; s != nil {
		run.tell.total += len(s.Variants) * len(s.Noise) * max(1, len(s.SwitchBuffers))
	}
	for _, step := range []struct {
		phase string
		skip  bool
		do    func(context.Context) error
	}{
		{PhaseRaise, false, func(ctx context.Context) error { return run.site.Up(ctx, run.r) }},
		{PhaseHost, e.HostNoise.Window == 0, run.hostNoise},
		{PhaseServer, false, run.server},
		{PhasePrefill, !e.Workload.Prefill, run.site.Prefill},
		{PhaseRepeats, false, run.repeats},
		{PhaseSearch, e.Search == nil, run.search},
		{PhaseSweep, e.Sweep == nil, run.sweep},
		{PhaseHost, e.HostNoise.Window == 0, run.hostNoise},
	} {
		if step.skip {
			continue
		}
		run.phase = step.phase
		if step.phase != PhaseRepeats && step.phase != PhaseSweep {
			run.tell.sayf("%s", step.phase)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (run *runner) save() error {
	run.r.Took = int64(time.Since(run.began))
	if run.o.Save == nil {
		return nil
	}
	return run.o.Save(run.r)
}

// checkpoint saves the result so far, marked partial, so that a crash of the machine does not lose
// hours of measurement. A failure to save ends the run.
func (run *runner) checkpoint() error {
	run.r.Partial = &result.Partial{Phase: run.phase, Reason: "not ended yet"}
	err := run.save()
	run.r.Partial = nil
	if err != nil {
		run.unsaved = true
		return fmt.Errorf("%s: %w", PhaseSave, err)
	}
	return nil
}

func (run *runner) server(ctx context.Context) error {
	run.serving = run.e.Variants[0]
	s, err := run.site.StartServer(ctx, run.e.Variants[0])
	run.r.Server = s
	for _, n := range s.Notes {
		run.warnf("server.split: %s", n)
	}
	if s.Version != "" {
		name := s.Kind
		if len(s.Command) > 0 {
			name = filepath.Base(s.Command[0])
		}
		if c := run.e.Server.Command; run.e.Server.User != "" && len(c) > 0 {
			name = filepath.Base(c[0]) // without the program that switches the user
		}
		if run.r.Environment.Versions == nil {
			run.r.Environment.Versions = map[string]string{}
		}
		run.r.Environment.Versions[name] = s.Version
	}
	return err
}

func (run *runner) warnf(format string, args ...any) {
	run.r.Warnings = append(run.r.Warnings, fmt.Sprintf(format, args...))
}

// hostNoise measures the host noise, before and after the windows. Noise above the limit is a
// warning, or an error if the experiment says so.
func (run *runner) hostNoise(ctx context.Context) error {
	h := run.e.HostNoise
	x, err := run.site.HostNoise(ctx, h.Window)
	if err != nil {
		return err
	}
	run.r.HostNoise = append(run.r.HostNoise, x)
	if h.AtMost == 0 {
		return nil
	}
	for _, c := range x.CPUs {
		late, err := stats.Percentile(c.Late, h.Percentile)
		if err != nil {
			return fmt.Errorf("processor %d: %w", c.CPU, err)
		}
		if late <= h.AtMost {
			continue
		}
		text := fmt.Sprintf("processor %d wakes a thread %v late at P%v, the experiment allows %v", c.CPU,
			time.Duration(late), h.Percentile, time.Duration(h.AtMost))
		if h.Refuse {
			return errors.New(text)
		}
		run.warnf("host noise: %s", text)
	}
	return nil
}

// points returns the load points of the file: one for each number of connections in a closed loop,
// and one for each rate in an open loop.
func points(l experiment.Load) []result.Point {
	var out []result.Point
	if l.Mode == experiment.Closed {
		for _, n := range l.Connections {
			out = append(out, result.Point{Mode: load.Closed, Connections: n})
		}
		return out
	}
	for _, rate := range l.Rates {
		out = append(out, result.Point{Mode: load.Open, Rate: float64(rate), Connections: l.Connections[0]})
	}
	return out
}

func (run *runner) repeats(ctx context.Context) error {
	run.r.Points = points(run.e.Load)
	for i := range run.r.Points {
		if err := run.point(ctx, i); err != nil {
			return fmt.Errorf("%s: %w", run.r.Points[i].Name(), err)
		}
		if err := run.checkpoint(); err != nil {
			return err
		}
	}
	return nil
}

// point measures load point i: rounds of all variants, until there are enough rounds.
func (run *runner) point(ctx context.Context, i int) error {
	p := &run.r.Points[i]
	series := map[string][]*stats.Series{}
	planned := run.e.Repeats.Max
	for {
		for _, v := range order(run.e.Variants, p.Rounds) {
			w, err := run.window(ctx, v, fmt.Sprintf("%s, repeat %d, %s", p.Name(), p.Rounds+1, v.Name), Job{
				Rate: p.Rate, Connections: p.Connections, Warmup: run.e.Load.Warmup, Window: run.e.Load.Window,
				Noise: noiseOf(run.e, v),
			})
			if err != nil {
				return fmt.Errorf("repeat %d, %s: %w", p.Rounds+1, v.Name, err)
			}
			w.Purpose, w.Point, w.Repeat = result.Repeat, i, p.Rounds
			run.r.Windows = append(run.r.Windows, w)
			series[v.Name] = append(series[v.Name], w.Load.Series)
		}
		p.Rounds++
		d := enough(run.e, p.Rounds, series)
		run.tell.total += (d.Rounds - planned) * len(run.e.Variants)
		planned = d.Rounds
		if d.Stop {
			p.Stopped = d.Reason
			return nil
		}
	}
}

// enough decides whether to stop after the given number of rounds.
func enough(e *experiment.Experiment, rounds int, series map[string][]*stats.Series) stats.Decision {
	u := e.Repeats.Until
	if u == nil {
		return stats.Decision{Stop: rounds >= e.Repeats.Max, Rounds: e.Repeats.Max}
	}
	// With fewer rounds than stats.MinRounds, the intervals would not have the confidence that
	// they state.
	rule := stats.Rule{Min: max(e.Repeats.Min, stats.MinRounds), Max: e.Repeats.Max, Width: float64(u.Width) / 1000}
	if rule.Max < rule.Min {
		return stats.Decision{Stop: rounds >= rule.Max, Rounds: rule.Max,
			Reason: fmt.Sprintf("stopped at %d rounds: until is checked from %d rounds on", rule.Max,
				stats.MinRounds)}
	}
	if rounds < rule.Min {
		return stats.Decision{Rounds: rule.Max}
	}
	var watched []stats.Watched
	for _, v := range e.Variants {
		w := stats.Watched{Name: fmt.Sprintf("P%v of %s", u.Percentile, v.Name)}
		if x, err := stats.NewSample(series[v.Name]...).Interval(u.Percentile); err != nil {
			w.Missing = err.Error()
		} else {
			w.Low, w.Estimate, w.High = float64(x.Low), float64(x.Value), float64(x.High)
		}
		watched = append(watched, w)
	}
	return rule.Decide(rounds, watched)
}

// window starts what a variant needs (server, tuning, lanes) and measures one window of it.
func (run *runner) window(ctx context.Context, v experiment.Variant, what string, j Job) (result.Window, error) {
	if err := ctx.Err(); err != nil {
		return result.Window{}, err
	}
	run.tell.window(what)
	if err := run.serve(ctx, v); err != nil {
		return result.Window{}, err
	}
	leftOut, err := run.site.SetTune(ctx, v)
	if err != nil {
		return result.Window{}, err
	}
	lanes, err := run.site.SetLanes(ctx, v)
	if err != nil {
		return result.Window{}, err
	}
	for i := range run.r.Variants {
		if x := &run.r.Variants[i]; x.Name == v.Name && x.Plan == "" {
			x.Lanes, x.Plan = lanes.Text, lanes.Plan
			x.Differences = append(x.Differences, lanes.Did...)
		}
		if x := &run.r.Variants[i]; x.Name == v.Name {
			for _, text := range leftOut { // the same each time
				if !slices.Contains(x.Differences, text) {
					x.Differences = append(x.Differences, text)
				}
			}
		}
		if x := &run.r.Variants[i]; x.Name == v.Name && x.ClientPlan == "" {
			x.ClientPlan = lanes.ClientPlan
		}
	}
	run.seed++
	j.Seed = run.seed
	w, err := run.timed(ctx, j)
	if err != nil {
		return w, err
	}
	w.Variant, w.Rate = v.Name, j.Rate
	if len(w.Counts) > 0 {
		if err := prove(run.e.Workload, w.Counts, w.Load.Work.Unanswered); err != nil {
			return w, err
		}
	}
	return w, gated(run.e, &w)
}

// serve restarts the server if the variant needs another one.
func (run *runner) serve(ctx context.Context, v experiment.Variant) error {
	if v.SameServer(&run.serving) {
		return nil
	}
	run.serving = v
	if _, err := run.site.StartServer(ctx, v); err != nil {
		return err
	}
	if !run.e.Workload.Prefill {
		return nil
	}
	return run.site.Prefill(ctx)
}

// timed measures a window and checks the clocks.
func (run *runner) timed(ctx context.Context, j Job) (result.Window, error) {
	before, err := run.o.clocks()
	if err != nil {
		return result.Window{}, err
	}
	w, err := run.site.Measure(ctx, j)
	if err != nil {
		return w, err
	}
	after, err := run.o.clocks()
	if err != nil {
		return w, err
	}
	warning, err := after.since(before)
	if warning != "" {
		w.Warnings = append(w.Warnings, warning)
	}
	return w, err
}

func noiseOf(e *experiment.Experiment, v experiment.Variant) []experiment.Noise {
	if !v.Noise {
		return nil
	}
	return e.Noise
}

// anyRate disables the rule about the achieved rate: 0 would be package search's default.
const anyRate = 1e-9

func (run *runner) search(ctx context.Context) error {
	s, sla := run.e.Search, run.e.SLA
	c := search.Config{Low: float64(s.From), High: float64(s.To), Resolution: float64(s.Resolution) / 1000}
	c.Goal.Achieved = 0.95
	if !s.FivePercentRule {
		c.Goal.Achieved = anyRate
	}
	if sla != nil {
		c.Goal.Percentile, c.Goal.Limit = sla.Percentile, sla.At
	}
	for _, v := range run.e.Variants {
		if !s.Searches(v.Name) {
			continue
		}
		found, err := search.Run(ctx, c, func(ctx context.Context, rate float64) (search.Outcome, error) {
			w, err := run.window(ctx, v, fmt.Sprintf("search, %s, %.0f/s", v.Name, rate), Job{
				Rate: rate, Connections: run.e.Load.Connections[0], Warmup: run.e.Load.Warmup,
				Window: experiment.SearchWindow(run.e, rate), Noise: noiseOf(run.e, v),
			})
			if err != nil {
				return search.Outcome{}, err
			}
			w.Purpose = result.Searching
			run.r.Windows = append(run.r.Windows, w)
			return search.Outcome{Achieved: w.Load.AchievedRate, Latency: w.Load.Series}, nil
		})
		if found != nil {
			run.r.Searches = append(run.r.Searches, result.Search{Variant: v.Name, Config: c, Result: found})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		if err := run.checkpoint(); err != nil {
			return err
		}
	}
	return nil
}

// sweep measures one window for each combination of switch buffer, noise and variant.
func (run *runner) sweep(ctx context.Context) error {
	s := run.e.Sweep
	buffers := s.SwitchBuffers
	if len(buffers) == 0 {
		buffers = []int64{0}
	}
	j := Job{Connections: run.e.Load.Connections[0], Warmup: run.e.Load.Warmup, Window: s.Window}
	if len(run.e.Load.Rates) > 0 {
		j.Rate = float64(run.e.Load.Rates[0])
	}
	for _, buffer := range buffers {
		if err := run.site.SetSwitchBuffer(buffer); err != nil {
			return err
		}
		for _, share := range s.Noise {
			j.Noise = nil
			for _, n := range run.e.Noise {
				n.Share, n.BitsPerSecond = share, 0
				j.Noise = append(j.Noise, n)
			}
			for _, v := range run.e.Variants {
				if !slices.Contains(s.Variants, v.Name) {
					continue
				}
				what := fmt.Sprintf("sweep, noise %v %%, buffer %d KiB, %s", float64(share)/10, buffer>>10, v.Name)
				w, err := run.window(ctx, v, what, j)
				if err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				w.Purpose, w.Sweep = result.Sweeping, &result.Sweep{Noise: share, SwitchBuffer: buffer}
				if buffer == 0 {
					w.Sweep.SwitchBuffer = int64(run.r.Environment.Network.SwitchBuffer)
				}
				run.r.Windows = append(run.r.Windows, w)
			}
		}
	}
	return run.site.SetSwitchBuffer(0)
}

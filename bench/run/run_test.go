// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/statstest"
)

const file = `version: 1
title: a test
lab: {}
server: {kind: niclane}
workload: {protocol: memcached, get-set: 9:1}
load:
  mode: open
  rates: [1000, 2000]
  connections: 4
  window: 1s
noise: [{direction: to-sut, rate: 30%}]
variants:
  - {name: idle, noise: off}
  - {name: noisy}
repeats: {min: 2}
`

// parse replaces texts in the constant file and parses it.
func parse(t *testing.T, replace ...string) *experiment.File {
	t.Helper()
	text := strings.NewReplacer(replace...).Replace(file)
	if len(replace) > 0 && text == file {
		t.Fatalf("nothing replaced by %q", replace)
	}
	f, err := experiment.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ran returns the result of a run without an error.
func ran(t *testing.T, f *experiment.File, site *fakeSite) *result.Result {
	t.Helper()
	r, err := Run(context.Background(), f, file, site, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fakeSite is a Site that only records the calls.
type fakeSite struct {
	log     []string
	windows int
	// measure is called before each window; n is from 1.
	measure func(ctx context.Context, n int) error
	lanes   Lanes
	counts  []result.Count
	down    error
	logs    map[string]string
	change  func(*result.Window)
	late    int64
	wakes   int  // number of wake-ups in the host noise; 0: enough
	hangs   bool // Up hangs until it is told to end
}

func (s *fakeSite) say(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *fakeSite) Up(ctx context.Context, _ *result.Result) error {
	s.say("up")
	if s.hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}
func (s *fakeSite) SetTune(_ context.Context, v experiment.Variant) ([]string, error) {
	if v.Tune == nil {
		return nil, nil
	}
	s.say("tune %s", v.Name)
	return []string{"not tuned: rings"}, nil
}
func (s *fakeSite) Logs() map[string]string { return s.logs }
func (s *fakeSite) StartServer(context.Context, experiment.Variant) (result.Server, error) {
	s.say("server")
	return result.Server{Kind: "fake", Command: []string{"/usr/bin/served", "-v"}, Version: "served 1.2"}, nil
}
func (s *fakeSite) Prefill(context.Context) error { s.say("prefill"); return nil }
func (s *fakeSite) HostNoise(context.Context, int64) (hiccup.Result, error) {
	return hiccup.Result{CPUs: []hiccup.CPU{{CPU: 3, Late: statstest.Equal(cmp.Or(s.wakes, 100_000), s.late)}}}, nil
}
func (s *fakeSite) SetLanes(_ context.Context, v experiment.Variant) (Lanes, error) {
	s.say("%s", v.Name)
	return s.lanes, nil
}
func (s *fakeSite) SetSwitchBuffer(bytes int64) error { s.say("buffer %d", bytes); return nil }
func (s *fakeSite) Down(ctx context.Context) error {
	s.say("down")
	return errors.Join(ctx.Err(), s.down)
}
func (s *fakeSite) Measure(ctx context.Context, j Job) (result.Window, error) {
	s.windows++
	if s.measure != nil {
		if err := s.measure(ctx, s.windows); err != nil {
			return result.Window{}, err
		}
	}
	rec := stats.NewRecorder(1e8, 20)
	for i := range 2000 {
		rec.Advance(i / 100)
		rec.Record(int64(1000 + i%100))
	}
	series := rec.Series()
	w := result.Window{Counts: s.counts, Load: load.Result{Mode: load.Open, Duration: j.Window, Intended: 2000,
		Completed: 2000, AchievedRate: 2000, Latency: series.Histogram(), Series: series}}
	if s.change != nil {
		s.change(&w)
	}
	return w, nil
}

// kept records the last value given to Save.
type kept struct {
	saves int
	last  result.Result
	err   error
}

func (k *kept) save(r *result.Result) error {
	k.saves++
	if k.err == nil {
		k.last = *r
	}
	return k.err
}

func TestRunInterleavesAndPutsBack(t *testing.T) {
	site, k := &fakeSite{}, &kept{}
	var out bytes.Buffer
	r, err := Run(context.Background(), parse(t), file, site, Options{Save: k.save, Progress: &out})
	if err != nil {
		t.Fatal(err)
	}
	want := "up server prefill idle noisy noisy idle idle noisy noisy idle down"
	if got := strings.Join(site.log, " "); got != want {
		t.Errorf("what was done:\n%s\nwant:\n%s", got, want)
	}
	if len(r.Windows) != 8 || r.Partial != nil || k.last.Partial != nil || r.Check() != nil {
		t.Errorf("%d windows, partial %v, kept partial %v, check %v", len(r.Windows), r.Partial, k.last.Partial,
			r.Check())
	}
	if v := r.Environment.Versions; len(v) != 1 || v["served"] != "served 1.2" {
		t.Errorf("versions %q", v)
	}
	if k.saves != 3 {
		t.Errorf("saved %d times, want after each of 2 load points and at the end", k.saves)
	}
	if !strings.Contains(out.String(), "8 of 8: 2000/s, 4 connections, repeat 2, idle") {
		t.Errorf("progress:\n%s", out.String())
	}
}

func TestRunKeepsWhatWasMeasured(t *testing.T) {
	died := errors.New("the server has ended: signal: killed")
	for name, c := range map[string]struct {
		file    []string
		site    *fakeSite
		cancel  int // number of the window before which the run is cancelled
		full    bool
		windows int
		phase   string
		reason  string
	}{
		"server dies": {site: &fakeSite{measure: func(_ context.Context,
			n int) error {
			return map[bool]error{true: died}[n == 4]
		}}, windows: 3, phase: PhaseRepeats, reason: "repeat 2, idle: the server has ended: signal: killed"},
		"interrupt":  {site: &fakeSite{}, cancel: 6, windows: 5, phase: PhaseRepeats, reason: "interrupted"},
		"before any": {site: &fakeSite{}, cancel: 1, windows: 0, phase: PhaseRepeats, reason: "interrupted"},
		"time limit": {file: []string{"repeats:", "time-limit: 1m\nrepeats:"}, site: &fakeSite{hangs: true},
			windows: 0, phase: PhaseRaise, reason: "time-limit"},
		"full disk": {site: &fakeSite{}, full: true, windows: 4, phase: PhaseRepeats,
			reason: "save: no space left on device"},
		"not the load": {site: &fakeSite{counts: []result.Count{{Name: "gets", Sent: 1000, Served: 1000},
			{Name: "sets", Sent: 0, Served: 1000}}}, windows: 0, phase: PhaseRepeats,
			reason: "the workload is not proven"},
		"noisy host": {file: []string{"repeats:", "host-noise: {at-most: 10us, otherwise: refuse}\nrepeats:"},
			site: &fakeSite{late: 20_000}, windows: 0, phase: PhaseHost, reason: "processor 3 wakes a thread"},
	} {
		t.Run(name, func(t *testing.T) {
			f := parse(t, c.file...)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if c.cancel > 0 {
				c.site.measure = func(ctx context.Context, n int) error {
					if n == c.cancel {
						cancel()
					}
					return ctx.Err()
				}
			}
			if c.site.hangs { // the file's shortest time limit is too long for a test
				f.Experiment.TimeLimit = 1e6
			}
			k := &kept{}
			if c.full {
				k.err = syscall.ENOSPC
			}
			r, err := Run(ctx, f, file, c.site, Options{Save: k.save})
			var at *Error
			if !errors.As(err, &at) || at.Phase != c.phase || !strings.Contains(err.Error(), "phase "+c.phase+": ") ||
				!strings.Contains(err.Error(), c.reason) {
				t.Errorf("error %v, want phase %s: %s", err, c.phase, c.reason)
			}
			if strings.Contains(err.Error(), PhaseTeardown) {
				t.Errorf("the way down: %v", err)
			}
			if len(r.Windows) != c.windows {
				t.Errorf("%d windows kept, want %d", len(r.Windows), c.windows)
			}
			if r.Partial == nil || r.Partial.Phase != c.phase || !strings.Contains(r.Partial.Reason, c.reason) {
				t.Errorf("partial: %+v, want phase %s: %s", r.Partial, c.phase, c.reason)
			}
			if c.windows > 0 && !c.full && (len(k.last.Windows) != c.windows || k.last.Partial == nil ||
				k.last.Partial.Reason != r.Partial.Reason) {
				t.Errorf("saved %d windows, partial %+v", len(k.last.Windows), k.last.Partial)
			}
			if c.windows == 0 && k.saves > 0 {
				t.Error("saved nothing over what may be there")
			}
			if c.site.log[len(c.site.log)-1] != "down" {
				t.Errorf("not taken down: %v", c.site.log)
			}
		})
	}
}

func TestRunReportsATeardownThatFails(t *testing.T) {
	r, err := Run(context.Background(), parse(t), file, &fakeSite{down: errors.New("busy")}, Options{})
	if err == nil || err.Error() != "phase teardown: busy" || len(r.Windows) != 8 || r.Partial != nil {
		t.Errorf("%v, %d windows, partial %v; want all windows and the error", err, len(r.Windows), r.Partial)
	}
}

func TestSweepSetsTheBufferBack(t *testing.T) {
	f := parse(t, "repeats:", "sweep: {variants: noisy, noise: [10%, 20%], switch-buffer: [64 KiB]}\nrepeats:")
	site := &fakeSite{}
	r := ran(t, f, site)
	if got, want := strings.Join(site.log[len(site.log)-5:], " "),
		"buffer 65536 noisy noisy buffer 0 down"; got != want {
		t.Errorf("at the end %q, want %q", got, want)
	}
	last := r.Windows[len(r.Windows)-1]
	if last.Purpose != result.Sweeping || *last.Sweep != (result.Sweep{Noise: 200, SwitchBuffer: 65536}) {
		t.Errorf("last window: %s %+v", last.Purpose, last.Sweep)
	}
}

// TestSearchWindows: at a low rate, a window of the search is longer, so that it has as many
// requests as the percentile needs.
func TestSearchWindows(t *testing.T) {
	f := parse(t, "  rates: [1000, 2000]\n", "", "repeats:",
		"sla: {percentile: 99, at: 20ms}\nsearch: {max-rate: {from: 100, to: 4000}}\nrepeats:")
	r := ran(t, f, &fakeSite{})
	longer := 0
	for _, w := range r.Windows {
		needs := int64(1050 / w.Rate * 1e9)
		if needs > f.Experiment.Load.Window {
			longer++
		}
		if want := max(needs, f.Experiment.Load.Window); w.Load.Duration != want {
			t.Errorf("at %v/s a window of %d ns, want %d", w.Rate, w.Load.Duration, want)
		}
	}
	if longer == 0 {
		t.Error("no window needs to be longer: the test tests nothing")
	}
}

func TestSearchOfSomeVariants(t *testing.T) {
	f := parse(t, "  rates: [1000, 2000]\n", "", "repeats:",
		"sla: {percentile: 90, at: 20ms}\nsearch: {max-rate: {from: 1000, to: 4000}, variants: noisy}\nrepeats:")
	r := ran(t, f, &fakeSite{})
	if len(r.Searches) != 1 || r.Searches[0].Variant != "noisy" {
		t.Fatalf("searches %+v, want one, of noisy", r.Searches)
	}
	for _, w := range r.Windows {
		if w.Variant != "noisy" {
			t.Errorf("a window of %s", w.Variant)
		}
	}
}

func TestSearchHoldsTheGoalOfTheFile(t *testing.T) {
	f := parse(t, "  rates: [1000, 2000]\n", "", "repeats:",
		"sla: {percentile: 90, at: 20ms}\nsearch: {max-rate: {from: 1000, to: 4000}}\nrepeats:")
	site := &fakeSite{}
	r := ran(t, f, site)
	if len(r.Searches) != 2 || len(r.Points) != 0 || len(r.Windows) != site.windows ||
		r.Windows[0].Purpose != result.Searching || r.Windows[0].Rate != 1000 {
		t.Fatalf("%d searches, %d points, %d windows, the first %s at %v/s", len(r.Searches), len(r.Points),
			len(r.Windows), r.Windows[0].Purpose, r.Windows[0].Rate)
	}
	// The fake answers 2000 requests a second at every rate.
	for _, s := range r.Searches {
		if g := s.Config.Goal; g.Achieved != 0.95 || g.Percentile != 90 || g.Limit != 20e6 {
			t.Errorf("goal %+v", g)
		}
		if s.Result.Rate < 2000 || s.Result.Rate > 2000/0.95 {
			t.Errorf("%s: %v/s found, want 2000 to 2105", s.Variant, s.Result.Rate)
		}
	}
}

func TestUntilStopsEarly(t *testing.T) {
	f := parse(t, "repeats: {min: 2}", "repeats: {min: 8, max: 40, until: {percentile: 90, width: 20%}}")
	site := &fakeSite{}
	r := ran(t, f, site)
	if p := r.Points[0]; p.Rounds != stats.MinRounds || !strings.Contains(p.Stopped, "within 20 %") {
		t.Errorf("%d rounds, %q; want %d of windows that are all the same", p.Rounds, p.Stopped, stats.MinRounds)
	}
}

func TestOrder(t *testing.T) {
	variants := []experiment.Variant{{Name: "A"}, {Name: "B"}, {Name: "C"}}
	var got []string
	places := map[string][3]int{}
	for i := range 6 {
		text := ""
		for k, v := range order(variants, i) {
			text += v.Name
			p := places[v.Name]
			p[k]++
			places[v.Name] = p
		}
		got = append(got, text)
	}
	if want := []string{"ABC", "CBA", "BCA", "ACB", "CAB", "BAC"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, p := range places {
		if p != [3]int{2, 2, 2} {
			t.Errorf("%s stands %v times in each place", name, p)
		}
	}
}

func TestProve(t *testing.T) {
	w := experiment.Workload{Gets: 9, Sets: 1, LeastHits: 1000}
	of := func(g, s, h int64) []result.Count {
		return []result.Count{{Name: gets, Served: g}, {Name: sets, Served: s}, {Name: hits, Served: h}}
	}
	for name, c := range map[string]struct {
		counts     []result.Count
		unanswered int64
		want       string
	}{
		"right":       {counts: of(9000, 1000, 9000)},
		"drawn":       {counts: of(9050, 950, 9050)},
		"unanswered":  {counts: of(9000, 1000, 8990), unanswered: 10},
		"other ratio": {counts: of(5000, 5000, 5000), want: "get-set: 9:1"},
		"misses": {counts: of(9000, 1000, 8000), want: "8000 of 9000 gets (88.9 %), the workload wants " +
			"least-hits: 100.0%"},
	} {
		errtest.Says(t, name, prove(w, c.counts, c.unanswered), c.want)
	}
}

// TestHostNoiseIsJudged: host noise above the file's limit is a warning. Too few samples for the
// percentile are an error.
func TestHostNoiseIsJudged(t *testing.T) {
	f := parse(t, "repeats:", "host-noise: {at-most: 10us}\nrepeats:")
	r := ran(t, f, &fakeSite{late: 20_000})
	if len(r.Warnings) != 2 || !strings.HasPrefix(r.Warnings[0], "host noise: processor 3 wakes a thread 20.") ||
		!strings.HasSuffix(r.Warnings[0], "late at P99, the experiment allows 10µs") {
		t.Errorf("%q, want a warning before and after", r.Warnings)
	}
	_, err := Run(context.Background(), f, file, &fakeSite{wakes: 7}, Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "phase host-noise: processor 3: P99 needs 1000 samples, have 7") {
		t.Error(err)
	}
}

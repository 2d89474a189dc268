// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/stats"
)

// trialFixture returns a trial of two files on one service: fast.yaml makes requests three times as fast,
// same.yaml changes nothing.
func trialFixture() *Result {
	r := &Result{
		Schema: Schema, Title: "a trial", Niclane: "test", Trial: &Trial{Seed: 1, Settle: 1e9, LoadWithin: 200, Worth: 50,
			Measure: "host", Baseline: "no lanes of these files", Missing: map[string]string{"card": "no timestamps"}},
		Experiment: &experiment.Experiment{Base: "without", Load: experiment.Load{Mode: Live, Window: 1e9},
			Variants: []experiment.Variant{{Name: "without"}, {Name: "fast.yaml", Lanes: "x"}, {Name: "same.yaml", Lanes: "x"}}},
		Variants: []Variant{{Name: "without"}, {Name: "fast.yaml", Lanes: "x"}, {Name: "same.yaml", Lanes: "x"}},
		Points:   []Point{{Mode: Live, Service: "memcached", Rounds: 12}},
	}
	for i := range 12 {
		for name, mean := range map[string]float64{"without": 150e3, "fast.yaml": 50e3, "same.yaml": 150e3} {
			w := window(name, i, 2000, mean*(1+0.01*float64((i*7+len(name))%5)))
			w.Machine, w.Rate, w.Load.Series = nil, 0, nil
			w.Load.Mode = Live
			w.Live = &LiveWindow{Followed: 2000, CPU: 2000*20e3 + int64((i*3+len(name))%7)*1e4,
				Waits: []LiveWait{{"app", window("app", i+len(name), 2000, 20e3).Load.Latency},
					{"socket-to-card", w.Load.Latency}}}
			r.Windows = append(r.Windows, w)
		}
	}
	slices.SortStableFunc(r.Windows, func(a, b Window) int { return 100*(a.Repeat-b.Repeat) + strings.Compare(a.Variant, b.Variant) })
	return r
}

func TestTrialText(t *testing.T) {
	var b bytes.Buffer
	if err := WriteText(&b, Summarize(trialFixture())); err != nil {
		t.Fatal(err)
	}
	golden(t, "trial.golden", b.Bytes())
}

func TestTrialVerdicts(t *testing.T) {
	s := Summarize(trialFixture())
	if got := s.Trial.Verdicts; got[0].Outcome != Keep || got[1].Outcome == Keep || s.Trial.Best != "fast.yaml" {
		t.Errorf("%+v, best %q", got, s.Trial.Best)
	}
	if v := s.Points[0].Variants[2]; v.Live.Pairs != 12 || v.Percentiles[0].ToTell < 12 {
		t.Errorf("same.yaml: %d pairs; P50 takes %d to tell", v.Live.Pairs, v.Percentiles[0].ToTell)
	}
	// Both are fast: the better one is named, with its ratio to the other.
	r := trialFixture()
	for i := range r.Windows {
		if w := &r.Windows[i]; w.Variant == "same.yaml" {
			w.Load.Latency = window("same", w.Repeat, 2000, 70e3).Load.Latency
		}
	}
	if s := Summarize(r); s.Trial.Best != "fast.yaml" || !strings.HasPrefix(s.Trial.BestText,
		"fast.yaml beside same.yaml: memcached: P99 ×0.7") {
		t.Errorf("best %q: %q", s.Trial.Best, s.Trial.BestText)
	}
}

// TestTrialRoundTrip checks that a trial's file gives the same conclusions when it is read again.
func TestTrialRoundTrip(t *testing.T) {
	r := trialFixture()
	path := t.TempDir() + "/result.json"
	if err := WriteFile(path, r); err != nil {
		t.Fatal(err)
	}
	again, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Summarize(r), Summarize(again)); diff != "" {
		t.Error(diff)
	}
}

// TestTrialWaitsAreGated checks that single waits are not judged if nothing else differs.
func TestTrialWaitsAreGated(t *testing.T) {
	r := trialFixture()
	base := r.windows(0, "without")
	for i := range r.Windows {
		w := &r.Windows[i]
		if w.Variant != "without" {
			w.Load.Latency = base[(w.Repeat+5)%len(base)].Load.Latency
		}
	}
	s := Summarize(r)
	for _, v := range s.Points[0].Variants[1:] {
		for _, x := range v.Live.Waits {
			for _, c := range x.Percentiles {
				if c.Difference == nil || c.Difference.Text != stats.Same {
					t.Errorf("%s %s P%v: %+v", v.Name, x.Stage, c.P, c.Difference)
				}
			}
		}
	}
	if s.Trial.Verdicts[0].Outcome == Keep {
		t.Error("a shorter wait alone, without a shorter whole, is a reason to keep")
	}
}

// TestRareEvents checks ratios of events that most windows do not have.
func TestRareEvents(t *testing.T) {
	windows, base := map[int]*Window{}, map[int]*Window{}
	for i := range 10 {
		windows[i] = &Window{Load: load.Result{Completed: 1000, Duration: 1e9}, Live: &LiveWindow{}}
		base[i] = &Window{Load: load.Result{Completed: 1000, Duration: 1e9}, Live: &LiveWindow{}}
	}
	if _, err := measureRatio(dropMeasure, windows, base); err == nil {
		t.Error("no events have a ratio")
	}
	base[3].Live.Drops = 1
	if r, err := measureRatio(dropMeasure, windows, base); err != nil || r.High < 1 || r.Low > 1 {
		t.Errorf("one event: %+v, %v", r, err)
	}
	for i := range windows {
		windows[i].Live.Drops = 9
	}
	if r, err := measureRatio(dropMeasure, windows, base); err != nil || r.Low < 5 {
		t.Errorf("nine events in each window: %+v, %v", r, err)
	}
}

// TestTrialMoreLoad: clients in a closed loop send more when answers come sooner. Then a longer time in the
// host is no harm if the round trip is shorter by more.
func TestTrialMoreLoad(t *testing.T) {
	for name, tt := range map[string]struct {
		load, trip float64 // of fast.yaml, beside 1 and 40 ms
		want       Outcome
	}{
		"more load, a much shorter round trip": {3, 1e6, Keep},
		"the same load":                        {1, 1e6, Weigh},
		"a slightly shorter round trip":        {3, 39.85e6, Weigh},
	} {
		r := trialFixture()
		for i := range r.Windows {
			w := &r.Windows[i]
			host, trip := 50e3, 40e6
			if w.Variant == "fast.yaml" {
				host, trip = 150e3, tt.trip
				w.Load.Duration = int64(float64(w.Load.Duration) / tt.load)
			}
			w.Load.Latency = window("host", w.Repeat, 2000, host*(1+0.01*float64(i%5))).Load.Latency
			var trips []int64
			for j := range 1000 {
				trips = append(trips, int64(trip)+int64(j*3)+int64(w.Repeat))
			}
			w.Live.Waits = append(w.Live.Waits, LiveWait{RoundTrip, stats.Rising(slices.Values(trips))})
		}
		v := Summarize(r).Trial.Verdicts[0]
		if v.Outcome != tt.want {
			t.Errorf("%s: %q, want %q: %q", name, v.Outcome, tt.want, v.Reasons)
		}
		told := slices.ContainsFunc(v.Reasons, func(s string) bool {
			return strings.HasPrefix(s, "longer at more load, and the round trip is shorter by more: memcached: P99 ×")
		})
		if told != (tt.want == Keep) {
			t.Errorf("%s: %q", name, v.Reasons)
		}
	}
}

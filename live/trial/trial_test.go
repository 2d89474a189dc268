// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/live/waits"
)

// TestRun checks the windows of a whole trial: what was switched, when, and what the windows have.
func TestRun(t *testing.T) {
	w := newWorld(1)
	c := w.config(3, 30)
	var progress []Progress
	c.Progress = func(p Progress) { progress = append(progress, p) }
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if n := len(r.Windows); n < 27 || n > 33 || n%3 != 0 || r.Points[0].Rounds != len(r.Windows)/3 || r.Partial != nil {
		t.Errorf("%d windows in %d rounds, partial %v", len(r.Windows), r.Points[0].Rounds, r.Partial)
	}
	if took := time.Duration(r.Took); took > c.For+20*time.Second || took < c.For*3/4 {
		t.Errorf("took %v, want about %v", took, c.For)
	}
	if w.undone != 1 || w.variant != 0 {
		t.Errorf("undone %d times, variant %d is in force", w.undone, w.variant)
	}
	// Only a change of the variant is a switch.
	var want []int
	now := 0
	names := []string{"without", "lane1", "lane2"}
	for _, x := range r.Windows {
		if v := slices.Index(names, x.Variant); v != now {
			now, want = v, append(want, v)
		}
		if x.Live.Settled != 0 && x.Live.Settled < int64(c.Settle) || x.Load.Duration != int64(c.Window) {
			t.Errorf("settled %v, measured %v", time.Duration(x.Live.Settled), time.Duration(x.Load.Duration))
		}
		if x.Load.Completed != 500 || x.Load.Latency.Count() != 500 || len(x.Live.Waits) != 2 {
			t.Errorf("%d requests, %d in the histogram, %d waits", x.Load.Completed, x.Load.Latency.Count(),
				len(x.Live.Waits))
		}
	}
	if !slices.Equal(w.order, want) {
		t.Errorf("switched to %v, want %v", w.order, want)
	}
	if len(progress) < len(r.Windows) || !progress[0].Settling || progress[0].Windows < 25 || progress[0].Windows > 35 {
		t.Errorf("%d messages of progress, the first %+v", len(progress), progress[0])
	}
}

// TestEnds checks each way in which a trial ends early: the lanes are undone, and the result has what was
// measured before, and says why it is partial.
func TestEnds(t *testing.T) {
	gone := errors.New("lanes.yaml: no such device")
	after := func(n int, w *world) bool { return len(w.order) >= n }
	for name, tt := range map[string]struct {
		set  func(w *world, stop func())
		want string
		none bool // nothing was measured
	}{
		"interrupted": {set: func(w *world, stop func()) {
			w.onCheck = func(w *world) error {
				if after(5, w) {
					stop()
				}
				return nil
			}
		}, want: "interrupted"},
		"switch": {set: func(w *world, _ func()) {
			w.onSwitch = func(w *world) error {
				if after(4, w) {
					return gone
				}
				return nil
			}
		}, want: "no such device"},
		"first switch": {set: func(w *world, _ func()) { w.onSwitch = func(*world) error { return gone } },
			want: "no such device"},
		"taken away": {set: func(w *world, _ func()) {
			w.onCheck = func(w *world) error {
				if after(5, w) {
					return errors.New("the lanes were undone by another program")
				}
				return nil
			}
		}, want: "undone by another program"},
		"restart": {set: func(w *world, _ func()) {
			w.pids = func(w *world) []int {
				if after(5, w) {
					return []int{13, 14}
				}
				return []int{11, 12}
			}
		}, want: "svc was restarted during the trial"},
		"restart without requests": {set: func(w *world, _ func()) {
			w.silent = func(w *world) bool { return after(5, w) }
			w.pids = func(w *world) []int {
				if after(5, w) {
					return []int{13, 14}
				}
				return []int{11, 12}
			}
		}, want: "svc was restarted during the trial"},
		"traffic ends": {set: func(w *world, _ func()) { w.silent = func(w *world) bool { return after(5, w) } },
			want: "no request to svc was answered in 10s after the switch"},
		"traffic ends in a window": {set: func(w *world, _ func()) {
			var at time.Time
			w.silent = func(w *world) bool {
				if after(5, w) && at.IsZero() {
					at = w.now.Add(2 * time.Second)
				}
				return !at.IsZero() && w.now.After(at)
			}
		}, want: "no request to svc was answered in"},
		"no traffic": {set: func(w *world, _ func()) { w.silent = func(*world) bool { return true } },
			want: "so there is nothing to measure", none: true},
		"not restored": {set: func(w *world, _ func()) {
			w.onUndo = func() error { return errors.New("rule 7 is busy") }
		}, want: "could not be taken away: rule 7 is busy"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			tt.set(w, stop)
			r, err := Run(ctx, w.config(2, 30))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			if w.undone == 0 || w.variant != 0 {
				t.Errorf("undone %d times, variant %d is in force", w.undone, w.variant)
			}
			if tt.none {
				if r != nil || len(w.order) > 0 {
					t.Errorf("switched to %v, result %v", w.order, r)
				}
				return
			}
			if r == nil {
				return // the first window had not ended
			}
			if r.Partial == nil || !strings.Contains(r.Partial.Reason, tt.want) {
				t.Errorf("partial %+v", r.Partial)
			}
			if left := new(LeftError); errors.As(err, &left) != (name == "not restored") {
				t.Errorf("%v: left %v", err, left)
			}
			if err := r.Check(); err != nil {
				t.Error(err)
			}
			for _, x := range r.Windows {
				if x.Load.Completed == 0 {
					t.Error("a window without requests counts")
				}
			}
			result.Summarize(r)
		})
	}
}

// TestNeighbour: a service in no lane may be silent, before the trial and in it.
func TestNeighbour(t *testing.T) {
	w := newWorld(1)
	c := w.config(2, 20)
	c.Services = append(c.Services, Service{Name: "other", Neighbour: true})
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Points) != 1 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "other is not measured") {
		t.Errorf("%d services, warnings %q", len(r.Points), r.Warnings)
	}
}

// TestHistogram checks that the conversion keeps the number of values, and percentiles within a bucket.
func TestHistogram(t *testing.T) {
	var h waits.Histogram
	for i := range int64(10_000) {
		h.Record(i * i)
	}
	got := histogram(&h)
	if got.Count() != 10_000 {
		t.Errorf("%d values", got.Count())
	}
	for _, p := range []float64{10, 50, 99, 99.9} {
		want := p * p * 1e4
		if v := float64(got.ValueAt(p)); v < want*0.995 || v > want*1.005 {
			t.Errorf("P%v is %.0f, want %.0f", p, v, want)
		}
	}
	if histogram(nil).Count() != 0 {
		t.Error("no histogram has values")
	}
}

// TestWorkers: workers that come and go are no restart.
func TestWorkers(t *testing.T) {
	w := newWorld(1)
	w.pids = func(w *world) []int { return []int{12, 100 + len(w.order)} }
	if _, err := Run(t.Context(), w.config(2, 20)); err != nil {
		t.Error(err)
	}
}

// TestSampled checks that the number of requests is extrapolated if only a share of them is followed.
func TestSampled(t *testing.T) {
	w := newWorld(1)
	c := w.config(2, 10)
	c.Meter = sampled{w, 0.25}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if x := r.Windows[0]; x.Load.Completed != 2000 || x.Live.Followed != 500 || x.Load.AchievedRate != 400 {
		t.Errorf("%d requests, %d followed, %v/s", x.Load.Completed, x.Live.Followed, x.Load.AchievedRate)
	}
}

type sampled struct {
	*world
	rate float64
}

func (s sampled) Snapshot() (waits.Snapshot, error) {
	x, err := s.world.Snapshot()
	x.Followed = time.Duration(float64(x.Duration) * s.rate)
	return x, err
}

// TestUnfollowed: without followed requests, the trial does not blame the lanes.
func TestUnfollowed(t *testing.T) {
	w := newWorld(1)
	c := w.config(2, 30)
	m := &fading{world: w}
	c.Meter = m
	w.onSwitch = func(w *world) error {
		m.faded = len(w.order) > 4
		return nil
	}
	w.silent = func(*world) bool { return m.faded }
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrUnfollowed) || !strings.Contains(err.Error(), "in 0.1 % of the time") {
		t.Errorf("%v, want %v", err, ErrUnfollowed)
	}
}

// A fading meter follows nearly no request from a time on.
type fading struct {
	*world
	faded bool
	since time.Duration
}

func (f *fading) Snapshot() (waits.Snapshot, error) {
	x, err := f.world.Snapshot()
	if f.faded { // nearly nothing of the time since then
		f.since = cmp.Or(f.since, x.Duration)
		x.Followed = f.since + (x.Duration-f.since)/1000
	}
	return x, err
}

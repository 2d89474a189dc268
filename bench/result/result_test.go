// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/statstest"
)

var update = flag.Bool("update", false, "write the golden files")

// window returns a window of n requests whose latency is exponential with this mean.
func window(variant string, repeat, n int, mean float64) Window {
	random := rand.New(rand.NewPCG(uint64(repeat+1), uint64(variant[0])))
	rec := stats.NewRecorder(100e6, 10)
	for i := range n {
		rec.Advance(i * 10 / n)
		rec.Record(int64(mean * (0.5 + random.ExpFloat64()/2)))
	}
	s := rec.Series()
	return Window{Purpose: Repeat, Variant: variant, Repeat: repeat, Rate: float64(n), Load: load.Result{
		Mode: load.Open, Duration: 1e9, Intended: int64(n), Sent: int64(n), Completed: int64(n), Hits: int64(n),
		Latency: s.Histogram(), Series: s, Wakeup: statstest.Equal(n, 2000), CPUTime: 1e8,
		Work: load.Work{Gets: int64(n)},
	}, Machine: &machine.Diff{Duration: 1e9,
		Processes: []machine.Process{{Name: "server", User: int64(n) * 1000, System: int64(n) * 4000}}}}
}

// fixture returns a result with one load point and three variants: idle, no-lane (three times as
// slow as idle) and twin (the same as idle).
func fixture() *Result {
	r := &Result{
		Schema: Schema, Title: "a fixture", Niclane: "test", Started: time.Unix(1_700_000_000, 0).UTC(),
		Experiment: &experiment.Experiment{Base: "idle", Goals: []experiment.Goal{
			{Measure: experiment.MeasureLatency, Percentile: 99, Variant: "twin", Base: "idle", AtMost: 1.5},
			{Measure: experiment.MeasureLatency, Percentile: 99, Variant: "no-lane", Base: "idle", AtMost: 1.5},
			{Measure: experiment.MeasureNoise, Variant: "no-lane", Base: "no-lane", AtLeast: 0.95},
		}},
		Variants: []Variant{{Name: "idle"}, {Name: "no-lane"}, {Name: "twin"}},
		Points:   []Point{{Mode: load.Open, Rate: 2000, Connections: 8, Rounds: 10, Stopped: "10 repeats"}},
	}
	for i := range 10 {
		r.Windows = append(r.Windows, window("idle", i, 2000, 50e3), window("no-lane", i, 2000, 150e3),
			window("twin", i, 2000, 50e3))
		w := &r.Windows[len(r.Windows)-2]
		w.Noise = []Noise{{Direction: experiment.ToSUT, Asked: 4e8, Achieved: 3.9e8},
			{Direction: experiment.FromSUT, Asked: 4e8, Achieved: 2e8}}
	}
	return r
}

func TestText(t *testing.T) {
	partial := fixture()
	partial.Partial = &Partial{Phase: "repeats", Reason: "interrupted"}
	partial.Windows = partial.Windows[:4]
	partial.Points[0].Rounds, partial.Points[0].Stopped = 1, ""
	partial.Warnings = []string{"memcached is not installed"}
	for name, r := range map[string]*Result{"text": fixture(), "partial": partial} {
		var b bytes.Buffer
		if err := WriteText(&b, Summarize(r)); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".golden", b.Bytes())
	}
}

func TestFormats(t *testing.T) {
	r := fixture()
	r.Title = "a | fixture"
	r.Environment = Environment{Kernel: "6.18.0 #1", CPUModel: "a processor"}
	for _, format := range Formats[1:] {
		var b bytes.Buffer
		if err := WriteFormat(&b, r, format); err != nil {
			t.Fatal(err)
		}
		golden(t, format+".golden", b.Bytes())
	}
	errtest.Says(t, "another format", WriteFormat(&bytes.Buffer{}, r, "html"), "want text, csv, markdown, gobench")
}

// TestFewRepeats checks that six repeats are too few to show a difference among eight comparisons,
// although no-lane is three times as slow. The result must say how many repeats are enough.
func TestFewRepeats(t *testing.T) {
	for _, tt := range []struct {
		repeats int
		same    bool
		doubt   string
	}{
		{6, true, "6 repeats cannot tell any of 8 comparisons from chance, however large the difference; 9 repeats can " +
			"[no-lane, twin]"},
		{8, true, "8 repeats cannot tell any of 8 comparisons from chance, however large the difference; 9 repeats can " +
			"[no-lane, twin]"},
		{9, false, ""},
		{5, false, ""}, // t intervals can show it
	} {
		r := fixture()
		r.Windows = slices.DeleteFunc(r.Windows, func(w Window) bool { return w.Repeat >= tt.repeats })
		s := Summarize(r).Points[0]
		doubt := ""
		for _, d := range s.Doubts {
			if strings.Contains(d.Text, "comparisons") {
				doubt = d.String()
			}
		}
		if got := s.Variants[1].Percentiles[0].Difference; doubt != tt.doubt || (got.Text == stats.Same) != tt.same {
			t.Errorf("%d repeats: %+v, doubt %q, want %q", tt.repeats, got, doubt, tt.doubt)
		}
	}
}

// TestShortWindows checks windows in which fewer requests are answered than are in flight. Such a
// window must get a doubt: its latency is only that of the quickest requests.
func TestShortWindows(t *testing.T) {
	for _, tt := range []struct{ connections, pipeline, inFlight int }{
		{2000, 0, 0},
		{2001, 0, 2001},
		{1000, 2, 0},
		{1000, 3, 3000},
	} {
		want := ""
		if tt.inFlight > 0 {
			want = fmt.Sprintf("windows of 1s are too short: %d requests were in flight and 2000.0 were answered in "+
				"each, so rate and latency cover only the quickest [idle, no-lane, twin]", tt.inFlight)
		}
		r := fixture()
		r.Experiment.Load.Pipeline = tt.pipeline
		r.Points[0] = Point{Mode: load.Closed, Connections: tt.connections, Rounds: 10}
		got := ""
		for _, d := range Summarize(r).Points[0].Doubts {
			if strings.Contains(d.Text, "too short") {
				got = d.String()
			}
		}
		if got != want {
			t.Errorf("%+v: %q, want %q", tt, got, want)
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestSummaryDoesNotAverage(t *testing.T) {
	r := fixture()
	s := Summarize(r).Points[0]
	idle, slow, twin := s.Variants[0], s.Variants[1], s.Variants[2]
	var all []*stats.Histogram
	for _, w := range r.Windows {
		if w.Variant == "idle" {
			all = append(all, w.Load.Latency)
		}
	}
	if want, _ := stats.Percentile(stats.Merge(all...), 99); idle.Percentiles[2].Estimate.Value != want {
		t.Errorf("P99 %d, of all repeats together %d", idle.Percentiles[2].Estimate.Value, want)
	}
	if p := idle.Percentiles[4]; p.Estimate != nil || !strings.HasPrefix(p.Missing, "needs ") {
		t.Errorf("P99.99 of 20,000 samples: %+v, want a refusal", p)
	}
	if d := slow.Percentiles[0].Difference; d == nil || d.Text == stats.Same {
		t.Errorf("three times as slow: %+v", d)
	}
	if d := twin.Percentiles[0].Difference; d == nil || d.Text != stats.Same {
		t.Errorf("the same: %+v, want %s", d, stats.Same)
	}
	if idle.Percentiles[0].Ratio != nil {
		t.Error("the base is compared with itself")
	}
	if idle.ServerCPU != 5000 {
		t.Errorf("server CPU %v ns per request, want 5000", idle.ServerCPU)
	}
}

func TestRefusalNamesWhatIsMissing(t *testing.T) {
	for want, err := range map[string]error{
		"needs 90 more": &stats.TooFewError{Percentile: 90, Have: 10, Need: 100,
			Effective: 10},
		"needs 100, have 5000 worth 12": &stats.TooFewError{Percentile: 90, Have: 5000, Need: 100,
			Effective: 12},
		"needs 100, have 5000 worth less than 1": &stats.TooFewError{Percentile: 90, Have: 5000, Need: 100,
			Effective: 0.2},
		"needs more windows": fmt.Errorf("x: %w", &stats.BlindError{}),
		"something else":     errors.New("something else"),
	} {
		if got := refusal(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.json")
	r := fixture()
	if err := WriteFile(path, r); err != nil {
		t.Fatal(err)
	}
	back, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Summarize(r), Summarize(back)); diff != "" {
		t.Errorf("summary after reading (-want +got):\n%s", diff)
	}
}

func written(t testing.TB, r *Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReadRefuses(t *testing.T) {
	good := written(t, fixture())
	sweeping, searched := fixture(), fixture()
	sweeping.Windows[0].Purpose = Sweeping
	searched.Searches = []Search{{Variant: "idle"}}
	for name, c := range map[string]struct{ text, want string }{
		"older":    {strings.Replace(good, "niclane.result/2", "niclane.result/1", 1), "measure again"},
		"newer":    {strings.Replace(good, "niclane.result/2", "niclane.result/3", 1), "of a newer niclane"},
		"foreign":  {`{"schema": "other/2"}`, "is not a result of niclane"},
		"none":     {`{}`, "no schema"},
		"no JSON":  {`x`, "not a result"},
		"key":      {strings.Replace(good, `"title"`, `"titel"`, 1), `unknown field "titel"`},
		"variant":  {strings.Replace(good, `"variant": "idle"`, `"variant": "other"`, 1), `variant "other"`},
		"point":    {strings.Replace(good, `"point": 0`, `"point": 7`, 1), "load point 7 of 1"},
		"purpose":  {strings.Replace(good, `"purpose": "repeat"`, `"purpose": "fun"`, 1), `purpose "fun"`},
		"duration": {strings.Replace(good, `"durationNs": 1000000000`, `"durationNs": 0`, 1), "no duration"},

		"cut": {good[:len(good)/2],
			fmt.Sprintf("the file ends in the middle, after %d bytes", len(good)/2)},
		"more": {good + "{}", "not a result of niclane: invalid character '{' after top-level value"},
		"more after a window": {strings.Replace(good, `"purpose": "repeat",`,
			`"purpose": "repeat"} {"purpose": "repeat",`, 1), "not a result of niclane: invalid character '{'"},
		"a key of a window": {strings.Replace(good, `"purpose"`, `"porpoise"`, 1),
			`windows[0]: json: unknown field "porpoise"`},
		"windows twice": {strings.Replace(good, `"windows"`, `"windows": [], "windows"`, 1),
			"windows: found twice, want one"},
		"damaged buckets": {regexp.MustCompile(`"hdr": "HISTFAAA....`).ReplaceAllString(good,
			`"hdr": "HISTFAAAAAAA`), "windows[0]: "},
		"no experiment":        {`{"schema": "niclane.result/2", "windows": []}`, "experiment is missing"},
		"a sweep of nothing":   {written(t, sweeping), "windows[0]: purpose \"sweep\", but sweep is missing"},
		"a search of nothing":  {written(t, searched), "searches[0]: no result"},
		"not even an object":   {`[1]`, "not a result of niclane"},
		"schema is no text":    {`{"schema": 2}`, "not a result of niclane"},
		"a window is a number": {`{"schema": "niclane.result/2", "windows": [1]}`, "windows[0]: "},
	} {
		if c.text == good {
			t.Errorf("%s: nothing changed", name)
		}
		_, err := Read(strings.NewReader(c.text))
		errtest.Says(t, name, err, c.want)
	}
}

func TestFullDiskKeepsTheEarlierResult(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.json")
	if err := WriteFile(path, fixture()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", path+".partial"); err != nil {
		t.Fatal(err)
	}
	err := WriteFile(path, fixture())
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("full disk: %v, want ENOSPC with the path", err)
	}
	if _, err := os.Lstat(path + ".partial"); err == nil {
		t.Error("the partial file is left")
	}
	if _, err := ReadFile(path); err != nil {
		t.Errorf("the earlier result: %v", err)
	}
}

// BenchmarkRead reads a result. It compares the time with that of json.Valid, which reads each byte
// once.
func BenchmarkRead(b *testing.B) {
	text := []byte(written(b, fixture()))
	b.SetBytes(int64(len(text)))
	var look time.Duration
	for b.Loop() {
		if _, err := decode(text); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		before := time.Now()
		if !json.Valid(text) {
			b.Fatal("no JSON")
		}
		look += time.Since(before)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(look), "times-json.Valid")
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestRanks checks ranks of order statistics by summing binomial probabilities, which must be at
// least 95 %. For n = 100 and the median, Hahn and Meeker have 40 and 61.
func TestRanks(t *testing.T) {
	for _, tt := range []struct {
		n, u         float64
		above, below float64 // numbers of samples beyond the two ends
		ok           bool
	}{
		{100, 0.5, 39, 60, true},
		{1000, 0.99, 3, 17, true},
		{300, 0.99, -1, 7, false}, // 0.99^300 = 4.9 %
		{368, 0.99, 0, 8, true},   // 0.99^368 = 2.5 %
		{367, 0.99, -1, 8, false},
		{10, 0.5, 1, 8, true},
	} {
		above, below, ok := ranks(tt.n, tt.u)
		if above != tt.above || below != tt.below || ok != tt.ok {
			t.Errorf("n %v, u %v: %v and %v beyond, %v; want %v and %v, %v", tt.n, tt.u, above, below, ok, tt.above,
				tt.below, tt.ok)
		}
	}
}

// windowed returns a series. f records the values of each window.
func windowed(windows int, f func(window int, record func(v int64))) *Series {
	r := NewRecorder(DefaultWindow, windows)
	for w := range windows {
		r.Advance(w)
		f(w, r.Record)
	}
	return r.Series()
}

// slowed returns windows of 100 samples. In each window, slow(window) samples are 1000 and all
// others 10.
func slowed(windows int, slow func(window int) int) *Series {
	return windowed(windows, func(w int, record func(int64)) {
		for i := range 100 {
			if i < slow(w) {
				record(1000)
			} else {
				record(10)
			}
		}
	})
}

func TestDesignEffect(t *testing.T) {
	// 64 windows have 100 samples each. The samples beyond are: 10 in every window; 20 in every second
	// window; 20 in two neighbours of four; all in one stall.
	for _, tt := range []struct {
		name    string
		beyond  func(w int) int
		effect  float64
		windows int
	}{
		{"even", func(int) int { return 10 }, 1, 0},
		// each window differs by 10 from the mean: 64/63·64·100 / (6400·0.1·0.9)
		{"every second", func(w int) int { return 20 * (w % 2) }, 11.287, 1},
		// each group of two differs by 20: 32/31·32·400 / 576
		{"pairs", func(w int) int { return 20 * (w / 2 % 2) }, 22.939, 2},
		// All samples beyond are in every second group of eight windows. Groups of 4 are the largest of
		// which there are at least 10. Each differs by 40: 16/15·16·1600 / 576
		{"eights", func(w int) int { return 20 * (w / 8 % 2) }, 47.407, 4},
	} {
		s := NewSample(slowed(64, tt.beyond))
		d, ok := s.design(bucketOf(10))
		if !ok || math.Abs(d.effect-tt.effect) > 1e-3 {
			t.Errorf("%s: design effect %.4f (%d windows), want %.4f", tt.name, d.effect, d.windows, tt.effect)
		}
		if tt.windows > 0 && d.windows != tt.windows {
			t.Errorf("%s: from groups of %d windows, want %d", tt.name, d.windows, tt.windows)
		}
	}
}

// TestDesignEffectOfRepeats checks repeats that differ. Their number, not the number of windows,
// must determine the number of effective samples.
func TestDesignEffectOfRepeats(t *testing.T) {
	var repeats []*Series
	for r := range 8 {
		repeats = append(repeats, slowed(20, func(int) int { return 10 * (r % 2) }))
	}
	d, _ := NewSample(repeats...).design(bucketOf(10))
	// each repeat differs by 100 from the mean: 8/7·8·10000 / (16000·0.05·0.95)
	if want := 120.301; d.windows != 0 || d.batches != 8 || math.Abs(d.effect-want) > 1e-3 {
		t.Errorf("design %+v, want effect %v of 8 repeats", d, want)
	}
}

func TestIntervalRefuses(t *testing.T) {
	even := func(windows, each int) *Series {
		rng := rand.New(rand.NewPCG(1, 1))
		return windowed(windows, func(_ int, record func(int64)) {
			for range each {
				record(rng.Int64N(1e9))
			}
		})
	}
	slow := func(is func(w, i int) bool) *Series {
		return windowed(100, func(w int, record func(int64)) {
			for i := range 1000 {
				if is(w, i) {
					record(1e9 + int64(i)*1e6)
				} else {
					record(1e5 + int64(i))
				}
			}
		})
	}
	// Ten stalls would be enough for P99. One stall is not, however many requests it delays.
	stall := slow(func(w, i int) bool { return w == 50 && i < 500 || w == 70 && i < 700 })
	// Of each window's requests, each are slow; one window has stall more, from a single stall.
	partly := func(each, stall int) *Series {
		return slow(func(w, i int) bool { return i < each || w == 40 && i < each+stall })
	}
	if e, err := NewSample(partly(100, 300)).Interval(90); err != nil || e.High > 12e8 {
		t.Errorf("a stall that is 3 %% of the tail: %+v, %v", e, err)
	}
	for _, tt := range []struct {
		name    string
		repeats []*Series
		p       float64
		want    string
	}{
		{"a stall that is a quarter of the tail", []*Series{partly(1, 30)}, 99.87,
			"P99.87 needs 151426 samples, have 100000 (worth 14317 independent ones): 51426 missing"},
		{"too few", []*Series{even(99, 10)}, 99, "P99 needs 1000 samples, have 990: 10 missing"},
		{"P99.999", []*Series{even(100, 1000)}, 99.999, "P99.999 needs 1000000 samples, have 100000: 900000 missing"},
		{"two stalls", []*Series{stall}, 99,
			"P99 needs 413716 samples, have 100000 (worth 192 independent ones): 313716 missing"},
		{"one histogram", []*Series{OneWindow(even(100, 1000).Histogram())}, 99, "no interval: 1 windows in 1 " +
			"repeats do not show how much samples depend on each other; want 10 windows or 6 repeats"},
		{"nothing", nil, 50, "P50 needs 20 samples, have 0: 20 missing"},
	} {
		_, err := NewSample(tt.repeats...).Interval(tt.p)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	var few *TooFewError
	if _, err := NewSample(stall).Interval(99); !errors.As(err, &few) || few.Effective > 1000 || few.Need <= few.Have {
		t.Errorf("two stalls: %+v", few)
	}
	if e, err := NewSample(stall).Interval(50); err != nil || e.Value > 2e5 {
		t.Errorf("P50 beside two stalls: %+v, %v", e, err)
	}
	for _, p := range []float64{0, 100, -1, math.NaN()} {
		if _, err := NewSample(even(20, 100)).Interval(p); err == nil {
			t.Errorf("P%v: no error", p)
		}
	}
}

// TestIntervalFarTail checks P99.999, which needs a million samples, and buckets fine enough to
// tell them apart.
func TestIntervalFarTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	s := windowed(40, func(_ int, record func(int64)) {
		for range 100_000 {
			record(int64(1e5 * rng.ExpFloat64()))
		}
	})
	e, err := NewSample(s).Interval(99.999)
	if err != nil {
		t.Fatal(err)
	}
	if truth := int64(1e5 * math.Log(1e5)); e.Low > truth || truth > e.High ||
		float64(e.High-e.Low) > 0.2*float64(e.Value) {
		t.Errorf("P99.999 is %d, %d to %d; the true one is %d", e.Value, e.Low, e.High, truth)
	}
	if len(e.Notes) != 1 || !strings.Contains(e.Notes[0], "one repeat") {
		t.Errorf("notes %q", e.Notes)
	}
	if _, err := json.Marshal(e); err != nil {
		t.Error(err)
	}
}

// coverage says how often the stated 95 % intervals must contain the true percentile. The servers
// are simulated, so this percentile is known.
type coverage struct {
	server  server
	repeats int
	n       int // number of requests in a repeat
	p       float64
	least   float64 // least share of given intervals that contain the true percentile, in per cent
	width   float64 // largest median of width divided by value; 0: not checked
	given   float64 // least share of samples that get an interval, in per cent
}

// The values of least allow for chance in 100 trials of a 95 % interval: one test in ten would see
// less than 92 %, one in a hundred less than 90 %. The seeds are fixed, so a test fails only if the
// method has changed.
var coverages = []coverage{
	{exponential(), 1, 30_000, 99.9, 93, 0.2, 95},
	{exponential(), 3, 20_000, 50, 93, 0.04, 100},
	{pareto(1.5), 1, 150_000, 99.9, 93, 0.3, 100},
	{bimodal(0.0012), 1, 100_000, 99.9, 93, 1, 100},
	{bimodal(0.0009), 1, 100_000, 99.9, 93, 0, 100}, // the percentile lies in the gap between the two modes
	{autoregressive(0.99, 0.7), 1, 200_000, 99, 93, 0.25, 100},
	{queue(0.7), 1, 300_000, 99.9, 92, 0.25, 60},
	{stalling(0.5, 0.005), 1, 300_000, 99.5, 92, 0, 95},
	{stalling(2, 0.02), 1, 300_000, 98, 92, 0, 80},
	{stallingQueue(), 1, 300_000, 99, 92, 0, 80},
	{moody(0.1), 10, 10_000, 99, 92, 0.2, 95},
	{moody(0.3), 10, 10_000, 99, 90, 0, 30},
}

// hard has cases in which many samples are refused. Among those that are not refused, samples that
// look better than the server are then frequent. BenchmarkCoverage uses them.
var hard = []coverage{
	{server: autoregressive(0.999, 0.7), repeats: 1, n: 300_000, p: 99},
	{server: stalling(5, 0.5), repeats: 1, n: 300_000, p: 90},
	{server: moody(0.3), repeats: 10, n: 30_000, p: 99},
}

func (c coverage) String() string {
	return fmt.Sprintf("%s %d×%d P%v", c.server.name, c.repeats, c.n, c.p)
}

// run simulates samples, as many as trials, and gets their intervals from estimate. It returns the
// share of intervals that contain the true percentile, the share of samples that got an interval (both in
// per cent), and the median relative width.
func (c coverage) run(trials int, estimate func(*Sample, float64) (Estimate, error)) (covered, given, width float64) {
	truth := c.server.quantile(c.p / 100)
	rng := rand.New(rand.NewPCG(7, 7))
	in := 0
	var widths []float64
	for range trials {
		e, err := estimate(NewSample(sample(rng, c.server, c.repeats, c.n)...), c.p)
		if err != nil {
			continue
		}
		if float64(e.Low) <= truth && truth <= float64(e.High) {
			in++
		}
		widths = append(widths, float64(e.High-e.Low)/float64(e.Value))
	}
	if len(widths) == 0 {
		return 0, 0, 0
	}
	slices.Sort(widths)
	return 100 * float64(in) / float64(len(widths)), 100 * float64(len(widths)) / float64(trials), widths[len(widths)/2]
}

// TestCoverage checks by simulation how often intervals contain the true percentile. It takes some
// seconds.
func TestCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates two hundred million requests")
	}
	for _, c := range coverages {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			covered, given, width := c.run(100, (*Sample).Interval)
			t.Logf("covered %.1f %% of the %.0f %% given, median width %.3f", covered, given, width)
			if covered < c.least && given > 0 {
				t.Errorf("covered %.1f %%, want at least %v %%", covered, c.least)
			}
			if given < c.given {
				t.Errorf("%.0f %% were given, want at least %v %%", given, c.given)
			}
			if c.width > 0 && width > c.width {
				t.Errorf("median width %.3f of the value, want at most %v", width, c.width)
			}
		})
	}
}

// independentInterval returns the interval that most tools state: from order statistics, as if
// samples were independent.
func independentInterval(s *Sample, p float64) (Estimate, error) {
	above, below, ok := ranks(float64(s.n), p/100)
	if !ok {
		return Estimate{}, errors.New("too few")
	}
	e := Estimate{Percentile: p}
	_, e.Value = bucketRange(s.bucketAt(int64(math.Ceil(p / 100 * float64(s.n)))))
	_, e.High = bucketRange(s.bucketAt(s.n - int64(above)))
	e.Low, _ = bucketRange(s.bucketAt(s.n - int64(below)))
	return e, nil
}

// TestCoverageOfIndependence checks that intervals for independent samples fail on these servers.
// Otherwise TestCoverage would prove nothing.
func TestCoverageOfIndependence(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates some ten million requests")
	}
	for _, c := range []coverage{
		{autoregressive(0.99, 0.7), 1, 200_000, 99, 40, 0, 0},
		{moody(0.1), 10, 10_000, 99, 50, 0, 0},
		{stalling(2, 0.02), 1, 300_000, 98, 30, 0, 0},
	} {
		if covered, _, _ := c.run(50, independentInterval); covered > c.least {
			t.Errorf("%s: assuming independence covers %.1f %%, expected at most %v %%", c, covered, c.least)
		}
	}
}

// BenchmarkCoverage prints the coverage of all methods that were considered. It takes minutes.
func BenchmarkCoverage(b *testing.B) {
	for _, m := range []struct {
		name     string
		estimate func(*Sample, float64) (Estimate, error)
	}{
		{"effective", (*Sample).Interval}, {"independent", independentInterval}, {"block bootstrap", blockBootstrap},
	} {
		for _, c := range slices.Concat(coverages, hard) {
			b.Run(m.name+"/"+c.String(), func(b *testing.B) {
				for range b.N {
					covered, given, width := c.run(200, m.estimate)
					b.ReportMetric(covered, "%covered")
					b.ReportMetric(given, "%given")
					b.ReportMetric(width, "width")
				}
			})
		}
	}
}

// blockBootstrap draws blocks of neighbouring windows (Künsch 1989, Annals of Statistics 17). A
// block has the cube root of the number of windows. The interval comes from the percentiles of 200
// draws. It is here only to be compared with Interval.
func blockBootstrap(s *Sample, p float64) (Estimate, error) {
	rng := rand.New(rand.NewPCG(9, 9))
	var values []int64
	counts := make([]int64, buckets)
	for range 200 {
		clear(counts)
		n := int64(0)
		for range s.repeats {
			r := s.repeats[rng.IntN(len(s.repeats))]
			block := int(math.Cbrt(float64(r.Windows())))
			for done := 0; done < r.Windows(); done += block {
				start := rng.IntN(r.Windows() - block + 1)
				for w := start; w < start+block; w++ {
					for from, to := r.bounds(w); from < to; from++ {
						counts[r.cells[from]] += int64(r.counts[from])
						n += int64(r.counts[from])
					}
				}
			}
		}
		t := Sample{counts: counts, n: n}
		_, v := bucketRange(t.bucketAt(int64(math.Ceil(p / 100 * float64(n)))))
		values = append(values, v)
	}
	slices.Sort(values)
	_, v := bucketRange(s.bucketAt(int64(math.Ceil(p / 100 * float64(s.n)))))
	return Estimate{Value: v, Low: values[5], High: values[194]}, nil
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestNeeded(t *testing.T) {
	for _, tt := range []struct {
		p    float64
		want int64
	}{{50, 20}, {90, 100}, {99, 1000}, {99.9, 10_000}, {99.99, 100_000}, {1, 1000}} {
		if got := Needed(tt.p); got != tt.want {
			t.Errorf("Needed(%v) = %d, want %d", tt.p, got, tt.want)
		}
	}
}

func filled(n int, f func(i int) int64) *Histogram {
	h := NewHistogram()
	for i := range n {
		h.Record(f(i))
	}
	return h
}

func TestPercentileRefusesSmallSamples(t *testing.T) {
	h := filled(999, func(i int) int64 { return int64(i) })
	_, err := Percentile(h, 99)
	var few *TooFewError
	if !errors.As(err, &few) {
		t.Fatalf("Percentile of 999 samples: %v, want a TooFewError", err)
	}
	if want := "P99 needs 1000 samples, have 999: 1 missing"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	h.Record(999)
	got, err := Percentile(h, 99)
	if err != nil || got != 989 {
		t.Errorf("P99 of 0..999 = %d, %v, want 989", got, err)
	}
	for _, p := range []float64{0, 100, -1, math.NaN()} {
		if _, err := Percentile(h, p); err == nil {
			t.Errorf("Percentile(%v) did not fail", p)
		}
	}
	if _, err := Percentile(nil, 50); !errors.As(err, &few) {
		t.Errorf("Percentile of nil: %v, want a TooFewError", err)
	}
}

// TestSignedRankCritical compares with critical values in Hollander, Wolfe, Chicken, table A.4. k
// is the critical value + 1.
func TestSignedRankCritical(t *testing.T) {
	for _, tt := range []struct {
		n        int
		two, one int
	}{{5, 0, 1}, {6, 1, 3}, {7, 3, 4}, {8, 4, 6}, {9, 6, 9}, {10, 9, 11}, {12, 14, 18}, {15, 26, 31}, {20, 53, 61},
		{25, 90, 101}} {
		if got := signedRankCritical(tt.n, 0.025); got != tt.two {
			t.Errorf("n=%d two-sided: %d, want %d", tt.n, got, tt.two)
		}
		if got := signedRankCritical(tt.n, 0.05); got != tt.one {
			t.Errorf("n=%d one-sided: %d, want %d", tt.n, got, tt.one)
		}
	}
}

func TestStudent(t *testing.T) {
	for _, tt := range []struct {
		p    float64
		df   float64
		want float64
	}{{0.975, 1, 12.706}, {0.975, 2, 4.303}, {0.975, 4, 2.776}, {0.95, 3, 2.353}, {0.975, 9, 2.262}, {0.95, 30, 1.697},
		{0.975, 1000, 1.962}} {
		if got := tQuantile(tt.p, tt.df); math.Abs(got-tt.want) > 5e-4 {
			t.Errorf("t(%v, %v) = %.4f, want %.3f", tt.p, tt.df, got, tt.want)
		}
	}
}

func pairs(ratios ...float64) []Pair {
	var ps []Pair
	for i, r := range ratios {
		base := int64(1e8) + int64(i)*1e7 // the base becomes slower with each pair, as on a drifting host
		ps = append(ps, Pair{Variant: int64(math.Round(r * float64(base))), Base: base})
	}
	return ps
}

func TestPairedRatio(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pairs []Pair
		want  Ratio
	}{
		{"constant", pairs(2, 2, 2, 2, 2, 2, 2, 2), Ratio{N: 8, Estimate: 2, Low: 2, High: 2, Upper: 2, Lower: 2}},
		{"constant, few", pairs(2, 2), Ratio{N: 2, Estimate: 2, Low: 2, High: 2, Upper: 2, Lower: 2}},
		// The logarithms are 0.1, 0.2 ... 1.0, so Walsh averages go from 0.1 to 1.0. In order they are
		// .1, .15, .2 .2, .25 .25, .3 .3 .3, .35 ...: the 9th smallest is 0.3, the 11th 0.35.
		{"ladder of ten", pairs(math.Exp(0.1), math.Exp(0.2), math.Exp(0.3), math.Exp(0.4), math.Exp(0.5),
			math.Exp(0.6), math.Exp(0.7), math.Exp(0.8), math.Exp(0.9), math.Exp(1)),
			Ratio{N: 10, Estimate: math.Exp(0.55), Low: math.Exp(0.3), High: math.Exp(0.8), Upper: math.Exp(0.75),
				Lower:     math.Exp(0.35),
				SpreadLog: 0.302765}},
		// The mean is 0.5, the standard deviation 0.5: 0.5 ± 4.303·0.5/√3 and ± 2.920·0.5/√3.
		{"three", pairs(1, math.Exp(0.5), math.Exp(1)),
			Ratio{N: 3, Estimate: math.Exp(0.5), Low: math.Exp(0.5 - 1.24207), High: math.Exp(0.5 + 1.24207),
				Upper: math.Exp(0.5 + 0.84293), Lower: math.Exp(0.5 - 0.84293), SpreadLog: 0.5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := PairedRatio(tt.pairs)
			if err != nil {
				t.Fatal(err)
			}
			got.Method, got.Chance = "", 0 // TestChance checks these two fields
			if d := cmp.Diff(tt.want, got, cmpopts.EquateApprox(1e-4, 1e-6)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
	for name, ps := range map[string][]Pair{"one pair": pairs(1), "none": nil, "zero": {{1, 0}, {1, 1}},
		"negative": {{-1, 1}, {1, 1}}} {
		if _, err := PairedRatio(ps); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestPairedRatioRobust checks that one disturbed repeat has little effect on the estimate.
func TestPairedRatioRobust(t *testing.T) {
	r, err := PairedRatio(pairs(1.1, 1.12, 1.09, 1.11, 1.1, 1.13, 1.08, 1.1, 1.11, 40))
	if err != nil {
		t.Fatal(err)
	}
	if r.Estimate > 1.15 || r.Upper > 1.5 {
		t.Errorf("estimate %.3f, upper bound %.3f: one outlier of ten moved them", r.Estimate, r.Upper)
	}
}

// TestPairedRatioCoverage checks that intervals contain the true ratio about as often as stated.
// They must not be too wide either: for normal noise, the mean width must be close to that of the t
// interval.
func TestPairedRatioCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	// With 6 pairs the interval is the whole range of the Walsh averages, which is a 96.9 % interval.
	for n, wider := range map[int]float64{3: 1.15, 6: 1.3, 10: 1.15, 20: 1.15} {
		const trials, sigma = 2000, 0.3
		covered, below, width := 0, 0, 0.0
		for range trials {
			var rs []float64
			for range n {
				rs = append(rs, 1.3*math.Exp(sigma*rng.NormFloat64()))
			}
			r, err := PairedRatio(pairs(rs...))
			if err != nil {
				t.Fatal(err)
			}
			if r.Low <= 1.3 && 1.3 <= r.High {
				covered++
			}
			if 1.3 <= r.Upper {
				below++
			}
			width += math.Log(r.High / r.Low)
		}
		// For a share of 0.95 in 2000 trials, 4 standard errors are 0.02.
		if c := float64(covered) / trials; c < 0.93 {
			t.Errorf("n=%d: two-sided interval covers %.3f, want at least 0.93", n, c)
		}
		if c := float64(below) / trials; c < 0.93 {
			t.Errorf("n=%d: upper bound covers %.3f, want at least 0.93", n, c)
		}
		ideal := 2 * tQuantile(0.975, float64(n-1)) * sigma / math.Sqrt(float64(n))
		if w := width / trials; w > wider*ideal {
			t.Errorf("n=%d: mean width %.3f, want at most %.2f × %.3f", n, w, wider, ideal)
		}
	}
}

func TestNoiseFloor(t *testing.T) {
	f, err := NoiseFloor([]int64{100, 110, 110, 100, 100, 110, 110, 100, 77}, 10)
	if err != nil {
		t.Fatal(err)
	}
	sd := math.Log(1.1)
	want := Floor{N: 4, SpreadLog: sd, ForPairs: 10, Detectable: math.Exp(2.1318 * sd / math.Sqrt(10))}
	if d := cmp.Diff(want, f, cmpopts.EquateApprox(1e-4, 0)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	for name, in := range map[string][]int64{"three": {1, 2, 3}, "zero": {1, 0, 1, 1}} {
		if _, err := NoiseFloor(in, 10); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestJudge(t *testing.T) {
	quiet, loud := &Floor{Detectable: 1.1, ForPairs: 10}, &Floor{Detectable: 1.7, ForPairs: 10}
	for _, tt := range []struct {
		name  string
		ratio Ratio
		floor *Floor
		want  Verdict
	}{
		{"clearly below", Ratio{N: 10, Low: 1, High: 1.2, Upper: 1.18}, quiet, Met},
		{"bound on the goal", Ratio{N: 10, Low: 1, High: 1.52, Upper: 1.5}, quiet, Met},
		{"clearly above", Ratio{N: 10, Low: 1.6, High: 2, Upper: 1.9}, quiet, Missed},
		{"across", Ratio{N: 10, Low: 1.4, High: 1.7, Upper: 1.6}, quiet, TooNoisy},
		{"below, no floor", Ratio{N: 10, Low: 1, High: 1.2, Upper: 1.18}, nil, Met},
		{"below, but so is chance", Ratio{N: 10, Low: 1, High: 1.2, Upper: 1.18}, loud, TooNoisy},
		{"above, but so is chance", Ratio{N: 10, Low: 1.6, High: 2, Upper: 1.9}, loud, TooNoisy},
		{"no interval", Ratio{N: 10, Low: math.NaN(), High: math.NaN(), Upper: math.NaN()}, nil, TooNoisy},
		{"no pairs", Ratio{}, nil, TooNoisy},
	} {
		if got := Judge(tt.ratio, 1.5, tt.floor); got.Verdict != tt.want || got.Reason == "" {
			t.Errorf("%s: %q (%s), want %q", tt.name, got.Verdict, got.Reason, tt.want)
		}
	}
	for _, tt := range []struct {
		name  string
		ratio Ratio
		want  Verdict
	}{
		{"kept", Ratio{N: 10, Low: 0.98, Lower: 0.985, High: 1}, Met},
		{"lost", Ratio{N: 10, Low: 0.8, Lower: 0.81, High: 0.9}, Missed},
		{"unclear", Ratio{N: 10, Low: 0.9, Lower: 0.92, High: 0.97}, TooNoisy},
		{"no pairs", Ratio{}, TooNoisy},
	} {
		if got := JudgeAtLeast(tt.ratio, 0.95); got.Verdict != tt.want {
			t.Errorf("at least, %s: %q (%s), want %q", tt.name, got.Verdict, got.Reason, tt.want)
		}
	}
}

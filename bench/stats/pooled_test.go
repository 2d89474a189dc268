// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// ratioPairs simulates pairs of repeats in which the variant is slower by factor. Each pair has a
// random factor, and each repeat has another one.
func ratioPairs(rng *rand.Rand, n int, factor float64) []SeriesPair {
	repeat := func(scale float64) *Series {
		return windowed(10, func(_ int, record func(int64)) {
			for range 300 {
				record(int64(scale * rng.ExpFloat64()))
			}
		})
	}
	var pairs []SeriesPair
	for range n {
		mood := 1e6 * math.Exp(0.3*rng.NormFloat64())
		pairs = append(pairs, SeriesPair{
			Variant: repeat(factor * mood * math.Exp(0.05*rng.NormFloat64())),
			Base:    repeat(mood * math.Exp(0.05*rng.NormFloat64())),
		})
	}
	return pairs
}

func TestPooledRatioCoverage(t *testing.T) {
	for n, widest := range map[int]float64{6: 0.35, 10: 0.2} {
		rng := rand.New(rand.NewPCG(11, 11))
		const trials = 100
		covered, wrong, width := 0, 0, 0.0
		for i := range trials {
			r, err := PooledRatio(ratioPairs(rng, n, 1.3), 90, uint64(i))
			if err != nil {
				t.Fatal(err)
			}
			if r.Low <= 1.3 && 1.3 <= r.High {
				covered++
			}
			width += math.Log(r.High/r.Low) / trials
			// Chance must be below 5 % only if the interval does not contain 1.
			if (r.Chance < 0.04) && r.Low <= 1 && 1 <= r.High || r.Chance > 0.06 && (r.Low > 1 || r.High < 1) {
				wrong++
			}
			if r.Low > r.Lower || r.Lower > r.Estimate || r.Estimate > r.Upper || r.Upper > r.High {
				t.Fatalf("out of order: %+v", r)
			}
		}
		if covered < trials*90/100 {
			t.Errorf("%d pairs: %d of %d intervals cover the ratio", n, covered, trials)
		}
		if width > widest {
			t.Errorf("%d pairs: mean width %.3f, want at most %v: pairing must cancel what pairs share", n, width,
				widest)
		}
		if wrong > 0 {
			t.Errorf("%d pairs: %d chances contradict their intervals", n, wrong)
		}
	}
}

func TestPooledRatio(t *testing.T) {
	pairs := ratioPairs(rand.New(rand.NewPCG(1, 2)), 8, 1)
	a, err := PooledRatio(pairs, 99, 5)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := PooledRatio(pairs, 99, 5); err != nil || a != b {
		t.Errorf("the same seed gave %+v and %+v, %v", a, b, err)
	}
	same := make([]SeriesPair, 8)
	for i := range same {
		same[i] = SeriesPair{pairs[i].Base, pairs[i].Base}
	}
	if r, err := PooledRatio(same, 90, 1); err != nil || r.Low != 1 || r.High != 1 || r.Chance != 1 {
		t.Errorf("itself: %+v, %v", r, err)
	}
	var few *TooFewError
	if _, err := PooledRatio(pairs, 99.99, 1); !errors.As(err, &few) ||
		!strings.HasPrefix(err.Error(), "pooled ratio, variant: P99.99 needs ") {
		t.Errorf("P99.99 of 24000: %v", err)
	}
	if _, err := PooledRatio(pairs[:5], 90, 1); err == nil {
		t.Error("five pairs: no error")
	}
}

func TestUnpairedRatio(t *testing.T) {
	e := func(v, low, high int64) Estimate { return Estimate{Percentile: 99, Value: v, Low: low, High: high} }
	r, err := UnpairedRatio(e(2000, 1800, 2200), e(1000, 950, 1100))
	if err != nil {
		t.Fatal(err)
	}
	// The ends of ln(ratio): ln 2 - √(ln²(2000/1800)+ln²1.1) and ln 2 + √(ln²1.1+ln²(1000/950)).
	if math.Abs(r.Low-2*math.Exp(-0.14205)) > 1e-4 || math.Abs(r.High-2*math.Exp(0.10823)) > 1e-4 || r.Chance > 1e-10 {
		t.Errorf("got %+v", r)
	}
	// If the interval ends at 1, Chance must be 5 %.
	r, err = UnpairedRatio(e(1100, 1000, 1200), e(1000, 1000, 1000))
	if err != nil || math.Abs(r.Low-1) > 1e-9 || math.Abs(r.Chance-0.05) > 1e-6 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err = UnpairedRatio(e(5, 4, 6), e(5, 4, 6)); err != nil || r.Chance != 1 || r.Estimate != 1 {
		t.Errorf("equal: %+v, %v", r, err)
	}
	if _, err := UnpairedRatio(e(5, 0, 6), e(5, 4, 6)); err == nil {
		t.Error("zero: no error")
	}
}

// TestUnpairedRatioCoverage compares two runs of a server whose latencies are correlated, as two
// result files are compared.
func TestUnpairedRatioCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 13))
	s := autoregressive(0.99, 0.7)
	const trials = 60
	in := 0
	for range trials {
		var e [2]Estimate
		for i := range e {
			var err error
			if e[i], err = NewSample(sample(rng, s, 1, 60_000)...).Interval(90); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := UnpairedRatio(e[0], e[1]); err != nil {
			t.Fatal(err)
		} else if r.Low <= 1 && 1 <= r.High {
			in++
		}
	}
	if in < 54 {
		t.Errorf("%d of %d intervals cover 1", in, trials)
	}
}

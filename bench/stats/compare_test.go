// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestHolm(t *testing.T) {
	// Sorted: .005·4, .01·3, .03·2, .04·1. Then no value may be smaller than the one before.
	got := Holm([]float64{0.01, 0.04, 0.03, 0.005})
	if d := cmp.Diff([]float64{0.03, 0.06, 0.06, 0.02}, got, cmpopts.EquateApprox(0, 1e-12)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if d := cmp.Diff([]float64{1, 0.2}, Holm([]float64{math.NaN(), 0.1})); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestCompare(t *testing.T) {
	forget := Ratio{N: 10, Estimate: 0.5, Low: 0.45, High: 0.55, Chance: 0.002}
	weak := Ratio{N: 10, Estimate: 0.9, Low: 0.82, High: 0.98, Chance: 0.03}
	family := []Comparison{
		{Ratio: forget},
		{Ratio: Ratio{N: 10, Estimate: 1.1, Low: 0.9, High: 1.3, Chance: 0.3}},
		{Ratio: weak},
		{Ratio: forget, Floor: &Floor{Detectable: 2.5, ForPairs: 10}},
		{Ratio: forget, Floor: &Floor{Detectable: 1.5, ForPairs: 10}},
		{},
	}
	want := []struct{ text, reason string }{
		{"-50.0%", "95 % interval 0.450 to 0.550; chance 0.012 among 6"},
		{Same, "includes 1"},
		{Same, "among 6 comparisons, chance alone makes a ratio like this with probability 0.09 (in a single " +
			"comparison: 0.03)"},
		{Same, "cannot tell ratios within a factor of 2.500 from 1"},
		{"-50.0%", "0.450"},
		{Same, "no interval"},
	}
	// A ratio without pairs has chance 0, which must not count as certain.
	family[5].Ratio.Chance = math.NaN()
	for i, d := range Compare(family) {
		if d.Text != want[i].text || !strings.Contains(d.Reason, want[i].reason) {
			t.Errorf("%d: %q (%s), want %q (%s)", i, d.Text, d.Reason, want[i].text, want[i].reason)
		}
	}
	if d := Compare([]Comparison{{Ratio: weak}}); d[0].Text != "-10.0%" {
		t.Errorf("alone: %+v", d[0])
	}
}

// TestCompareFamilyError compares families without any real difference. In 95 % of families,
// Compare must find none.
func TestCompareFamilyError(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 15))
	const trials, size = 400, 8
	families := 0
	for range trials {
		var family []Comparison
		for range size {
			var rs []float64
			for range 12 {
				rs = append(rs, math.Exp(0.2*rng.NormFloat64()))
			}
			r, err := PairedRatio(pairs(rs...))
			if err != nil {
				t.Fatal(err)
			}
			family = append(family, Comparison{Ratio: r})
		}
		for _, d := range Compare(family) {
			if d.Text != Same {
				families++
				break
			}
		}
	}
	if families > trials*8/100 {
		t.Errorf("%d of %d families claim a difference where there is none", families, trials)
	}
	if families == 0 {
		t.Error("no family ever claims one: the test is too strict")
	}
}

func TestChance(t *testing.T) {
	// Wilcoxon: 6 values of the same sign have 2/64. 10 values with W+ = 54 have 2·2/1024.
	if got := signedRankChance([]float64{1, 2, 3, 4, 5, 6}); math.Abs(got-2.0/64) > 1e-12 {
		t.Errorf("6 of one sign: %v", got)
	}
	if got := signedRankChance([]float64{-1, 2, 3, 4, 5, 6, 7, 8, 9, 10}); math.Abs(got-4.0/1024) > 1e-12 {
		t.Errorf("one small one against: %v", got)
	}
	if got := signedRankChance(make([]float64, 7)); got != 1 {
		t.Errorf("all zero: %v", got)
	}
	if got := tChance(2.262, 9); math.Abs(got-0.05) > 1e-4 {
		t.Errorf("t 2.262 with 9: %v", got)
	}
	if got := tChance(math.NaN(), 3); got != 1 {
		t.Errorf("t of 0/0: %v", got)
	}
}

// TestPairsFor checks that Compare detects a clear difference with PairsFor's number of pairs, and
// does not with one pair fewer.
func TestPairsFor(t *testing.T) {
	for _, comparisons := range []int{1, 2, 4, 24, 25, 26, 40, 52} {
		n := PairsFor(comparisons)
		for _, pairs := range []int{n - 1, n} {
			if pairs < MinWilcoxon {
				continue
			}
			var plain []Pair
			for i := range pairs {
				plain = append(plain, Pair{Variant: 100 + int64(i), Base: 1000})
			}
			ratio, err := PairedRatio(plain)
			if err != nil {
				t.Fatal(err)
			}
			family := make([]Comparison, comparisons)
			for i := range family {
				family[i].Ratio = ratio
			}
			for _, d := range Compare(family) {
				if (d.Text == Same) != (pairs < n) {
					t.Fatalf("%d pairs, %d comparisons: %s: %s", pairs, comparisons, d.Text, d.Reason)
				}
			}
		}
	}
}

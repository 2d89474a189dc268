// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/niclane/niclane/bench/part/errtest"
)

func TestRuleCheck(t *testing.T) {
	if err := (Rule{Min: 8, Max: 8, Width: 0.1}).Check(); err != nil {
		t.Error(err)
	}
	errtest.Says(t, "all", Rule{Min: 3, Max: 2, Width: math.NaN()}.Check(),
		"min 3: want at least 8", "max 2: want at least min, 3", "width NaN")
}

func TestDecide(t *testing.T) {
	rule := Rule{Min: 8, Max: 40, Width: 0.2}
	tight := Watched{Name: "lane P99", Low: 95, Estimate: 100, High: 110}
	wide := Watched{Name: "idle P99.9", Low: 80, Estimate: 100, High: 120}
	none := Watched{Name: "idle P99.99", Missing: "60 samples missing"}
	for _, tt := range []struct {
		name    string
		rounds  int
		watched []Watched
		want    Decision
	}{
		{"too early", 7, []Watched{tight}, Decision{Rounds: 8, Reason: "7 of at least 8 rounds: all intervals are " +
			"within 20 % of their value"}},
		{"tight", 8, []Watched{tight}, Decision{Stop: true, Met: true, Rounds: 8,
			Reason: "all intervals are within 20 % of their value"}},
		{"one wide", 9, []Watched{tight, wide}, Decision{Rounds: 36, Reason: "the interval of idle P99.9 is 40 % of " +
			"its value wide, want 20 %"}},
		{"none yet", 9, []Watched{wide, none}, Decision{Rounds: 40, Reason: "idle P99.99: 60 samples missing (and 1 " +
			"more)"}},
		{"limit", 40, []Watched{wide}, Decision{Stop: true, Rounds: 40, Reason: "stopped at the limit of 40 rounds: " +
			"the interval of idle P99.9 is 40 % of its value wide, want 20 %"}},
		{"tight at the limit", 40, []Watched{tight},
			Decision{Stop: true, Met: true, Rounds: 40, Reason: "all intervals are within 20 % of their value"}},
		{"nothing", 39, nil, Decision{Rounds: 40, Reason: "no interval is watched"}},
		{"nothing at the limit", 40, nil, Decision{Stop: true, Rounds: 40, Reason: "stopped at the limit of 40 " +
			"rounds: no interval is watched"}},
	} {
		if got := rule.Decide(tt.rounds, tt.watched); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestStoppingCoverage simulates how often intervals contain the true value if a Rule decides after
// each round. Rule's comment states 92 %.
func TestStoppingCoverage(t *testing.T) {
	rule := Rule{Min: MinRounds, Max: 60, Width: 0.2}
	rng := rand.New(rand.NewPCG(17, 17))
	for _, sigma := range []float64{0.05, 0.1, 0.15, 0.2, 0.3} {
		const trials = 1000
		covered, rounds := 0, 0
		for range trials {
			var rs []float64
			for {
				rs = append(rs, 1.3*math.Exp(sigma*rng.NormFloat64()))
				if len(rs) < rule.Min {
					continue
				}
				r, err := PairedRatio(pairs(rs...))
				if err != nil {
					t.Fatal(err)
				}
				if rule.Decide(len(rs), []Watched{{Low: r.Low, Estimate: r.Estimate, High: r.High}}).Stop {
					if r.Low <= 1.3 && 1.3 <= r.High {
						covered++
					}
					rounds += len(rs)
					break
				}
			}
		}
		t.Logf("spread %.2f: %.1f %% after %.1f rounds", sigma, 100*float64(covered)/trials, float64(rounds)/trials)
		// With a true share of 92 % in 1000 trials, 3 standard errors less would be 89.4 %.
		if covered < trials*92/100 {
			t.Errorf("spread %v: %d of %d intervals cover the ratio, want 92 %%", sigma, covered, trials)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
)

// Verdict says what the measurement shows about a goal.
type Verdict string

// The three verdicts.
const (
	Met      Verdict = "met"
	Missed   Verdict = "missed"
	TooNoisy Verdict = "too noisy to tell"
)

// A Judgement is a verdict with its reason in one sentence.
type Judgement struct {
	Verdict Verdict `json:"verdict"`
	Goal    float64 `json:"goal"`
	Reason  string  `json:"reason"`
}

// A Floor says how much two repeats of the same variant differ (A/A). This is the noise of the host
// itself.
type Floor struct {
	N         int     `json:"n"`         // number of pairs of neighbouring repeats; no repeat is in two pairs
	SpreadLog float64 `json:"spreadLog"` // standard deviation of the pairs' log ratios
	// Detectable is the smallest ratio above 1 that ForPairs pairs of variant and base can tell from
	// 1, if there is no noise but the host's.
	Detectable float64 `json:"detectable"`
	ForPairs   int     `json:"forPairs"`
}

// NoiseFloor computes the A/A floor from one percentile of successive repeats of the same variant
// (in ns, in the order measured). It is for a comparison of the given number of pairs. Repeats 0
// and 1, 2 and 3, ... form pairs; a last repeat without a partner is left out. The true mean
// difference of such a pair is zero, so the spread is the root mean square of the log ratios.
// NoiseFloor needs four repeats.
func NoiseFloor(repeats []int64, pairs int) (Floor, error) {
	n := len(repeats) / 2
	if n < 2 || pairs < 2 {
		return Floor{}, fmt.Errorf("noise floor: %d repeats for %d pairs, want at least 4 and 2", len(repeats), pairs)
	}
	ss := 0.0
	for i := range n {
		a, b := repeats[2*i], repeats[2*i+1]
		if a <= 0 || b <= 0 {
			return Floor{}, fmt.Errorf("noise floor: repeats %d and %d are %d and %d ns, want both positive", 2*i,
				2*i+1, a, b)
		}
		l := math.Log(float64(a) / float64(b))
		ss += l * l
	}
	sd := math.Sqrt(ss / float64(n))
	return Floor{
		N: n, SpreadLog: sd, ForPairs: pairs,
		Detectable: math.Exp(tQuantile(0.95, float64(n)) * sd / math.Sqrt(float64(pairs))),
	}, nil
}

// Judge compares a ratio with a goal that the ratio should not exceed.
//
// The goal is met if the one-sided upper 95 % bound is at most the goal. It is missed if the lower
// end of the two-sided interval is above the goal. Between the two, the verdict is too noisy. It is
// also too noisy if the host alone (floor, may be nil) makes repeats differ by as much as the goal
// allows: then the lane need not be the cause of the result.
func Judge(r Ratio, goal float64, floor *Floor) Judgement {
	j := Judgement{Goal: goal}
	switch {
	case math.IsNaN(r.Upper) || math.IsNaN(r.Low) || r.N < 2:
		j.Verdict = TooNoisy
		j.Reason = "there is no interval"
	case floor != nil && floor.Detectable > goal:
		j.Verdict = TooNoisy
		j.Reason = fmt.Sprintf("two idle repeats differ so much that %d pairs cannot tell ratios below %.2f from 1; "+
			"the goal is %.2f",
			floor.ForPairs, floor.Detectable, goal)
	case r.Upper <= goal:
		j.Verdict = Met
		j.Reason = fmt.Sprintf("upper 95 %% bound %.2f is at most %.2f", r.Upper, goal)
	case r.Low > goal:
		j.Verdict = Missed
		j.Reason = fmt.Sprintf("95 %% interval %.2f to %.2f lies above %.2f", r.Low, r.High, goal)
	default:
		j.Verdict = TooNoisy
		j.Reason = fmt.Sprintf("%.2f lies inside %.2f to %.2f (95 %% interval)", goal, r.Low, math.Max(r.High, r.Upper))
	}
	return j
}

// JudgeAtLeast compares a ratio with a goal that the ratio should reach or exceed. It is like
// Judge, with the bounds reversed.
func JudgeAtLeast(r Ratio, goal float64) Judgement {
	j := Judgement{Goal: goal}
	switch {
	case math.IsNaN(r.Lower) || math.IsNaN(r.High) || r.N < 2:
		j.Verdict, j.Reason = TooNoisy, "there is no interval"
	case r.Lower >= goal:
		j.Verdict = Met
		j.Reason = fmt.Sprintf("lower 95 %% bound %.3f is at least %.2f", r.Lower, goal)
	case r.High < goal:
		j.Verdict = Missed
		j.Reason = fmt.Sprintf("95 %% interval %.3f to %.3f lies below %.2f", r.Low, r.High, goal)
	default:
		j.Verdict = TooNoisy
		j.Reason = fmt.Sprintf("%.2f lies inside %.3f to %.3f (95 %% interval)", goal, math.Min(r.Low, r.Lower), r.High)
	}
	return j
}

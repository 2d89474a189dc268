// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// A Rule says when enough rounds were measured. A round is one repeat of every variant, so each
// repeat has its partner for a ratio.
//
// It is the sequential procedure of fixed width of Chow and Robbins (1965, Annals of Mathematical
// Statistics 36): stop after the first round in which all intervals are narrow enough. So the run
// tends to stop when the spread looks small by chance, and the interval contains the true value
// less often than stated. Starr (1966, same journal 37) computed how much less for normal data, and
// TestStoppingCoverage simulates it. If Min is MinRounds or more, intervals stated as 95 % contain
// the true value in at least 92 % of cases; more rounds reduce the loss. Decide uses the estimate
// only to compute the relative width. A rule that depends on the estimate itself would be biased.
type Rule struct {
	Min   int     `json:"min"`   // rounds before the first decision, at least MinRounds
	Max   int     `json:"max"`   // largest number of rounds
	Width float64 `json:"width"` // largest width of every interval, as a share of its estimate; more than 0
}

// MinRounds is the smallest value that Rule.Min may have.
const MinRounds = 8

// Watched is an interval that must become narrow before the run may stop.
type Watched struct {
	Name                string
	Low, Estimate, High float64
	// Missing is the reason why there is no interval yet; "" if there is one.
	Missing string
}

// width returns the interval's width as a share of the estimate.
func (w Watched) width() float64 {
	if w.Missing != "" || !(w.Estimate > 0) {
		return math.Inf(1)
	}
	return (w.High - w.Low) / w.Estimate
}

// A Decision says whether to stop after a round.
type Decision struct {
	Stop bool `json:"stop"`
	// Met says whether all intervals are at most as wide as Rule.Width.
	Met bool `json:"met"`
	// Rounds is how many rounds are expected in all, at most the rule's Max.
	Rounds int    `json:"rounds"`
	Reason string `json:"reason"`
}

// Check returns the errors in the rule.
func (r Rule) Check() error {
	var errs []error
	if r.Min < MinRounds {
		errs = append(errs, fmt.Errorf("min %d: want at least %d rounds", r.Min, MinRounds))
	}
	if r.Max < r.Min {
		errs = append(errs, fmt.Errorf("max %d: want at least min, %d", r.Max, r.Min))
	}
	if !(r.Width > 0) || math.IsInf(r.Width, 1) {
		errs = append(errs, fmt.Errorf("width %v: want more than 0", r.Width))
	}
	return errors.Join(errs...)
}

// Decide says whether to stop after rounds rounds. If watched is empty, it stops after Max rounds.
func (r Rule) Decide(rounds int, watched []Watched) Decision {
	worst, wide := -1, 0
	for i, w := range watched {
		if !(w.width() <= r.Width) {
			wide++
			if worst < 0 || w.width() > watched[worst].width() {
				worst = i
			}
		}
	}
	d := Decision{Rounds: r.Max, Met: wide == 0 && len(watched) > 0 && rounds >= r.Min}
	var why string
	switch {
	case len(watched) == 0:
		why = "no interval is watched"
	case wide == 0:
		d.Rounds = max(rounds, r.Min)
		why = fmt.Sprintf("all intervals are within %.0f %% of their value", 100*r.Width)
	default:
		w := watched[worst]
		why = w.Name + ": " + w.Missing
		if w.Missing == "" {
			why = fmt.Sprintf("the interval of %s is %.0f %% of its value wide, want %.0f %%", w.Name, 100*w.width(),
				100*r.Width)
			// A width shrinks with the square root of the number of rounds.
			ratio := w.width() / r.Width
			d.Rounds = max(r.Min, int(min(math.Ceil(float64(rounds)*ratio*ratio), float64(r.Max))))
		}
		if wide > 1 {
			why += fmt.Sprintf(" (and %d more)", wide-1)
		}
	}
	switch {
	case rounds >= r.Max && !d.Met:
		d.Stop = true
		why = fmt.Sprintf("stopped at the limit of %d rounds: %s", r.Max, why)
	case rounds < r.Min:
		why = fmt.Sprintf("%d of at least %d rounds: %s", rounds, r.Min, why)
	default:
		d.Stop = d.Met
	}
	d.Reason = strings.TrimSpace(why)
	return d
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// A Rule says when enough rounds have been measured. A round is one repeat of
// every variant, so that pairs stay whole.
//
// It is the sequential procedure of fixed width of Chow and Robbins (1965,
// Annals of Mathematical Statistics 36): stop at the first round after which
// the intervals are tight enough. Looking after each round favours stopping
// when the spread happens to look small, and the interval then covers less
// often than it says. How much less was computed for normal data by Starr
// (1966, same journal 37) and is simulated here (TestStoppingCoverage): with
// Min of MinRounds or more, intervals stated as 95 % cover at least 92 %, and
// the loss fades with more rounds. Looking at the estimate itself, and
// stopping when it pleases, would be something else; Decide never sees it but
// as the measure of width.
type Rule struct {
	Min   int     `json:"min"`   // rounds before the first look, at least MinRounds
	Max   int     `json:"max"`   // rounds at most
	Width float64 `json:"width"` // of every interval, as a share of its estimate, more than 0
}

// MinRounds is the smallest Rule.Min.
const MinRounds = 8

// Watched is an interval that must become tight.
type Watched struct {
	Name                string
	Low, Estimate, High float64
	// Missing is why there is no interval yet, "" when there is.
	Missing string
}

// width of the interval as a share of the estimate.
func (w Watched) width() float64 {
	if w.Missing != "" || !(w.Estimate > 0) {
		return math.Inf(1)
	}
	return (w.High - w.Low) / w.Estimate
}

// A Decision is what a Rule says after a round.
type Decision struct {
	Stop bool `json:"stop"`
	// Met is whether all intervals are as tight as asked for.
	Met bool `json:"met"`
	// Rounds is the expected total, at most the rule's Max.
	Rounds int    `json:"rounds"`
	Reason string `json:"reason"`
}

// Check returns what is wrong with the rule.
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

// Decide says whether to stop after so many rounds. Nothing watched is
// never tight: then Max rounds are measured.
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
			// Widths shrink with the square root of the number.
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

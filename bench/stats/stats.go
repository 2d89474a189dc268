// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
)

// MinBeyond is the number of samples that must lie beyond a percentile before it is reported. With
// k samples beyond, the relative standard error of their share is about 1/sqrt(k): 32 % for 10.
// Fewer samples describe single events, not the tail.
const MinBeyond = 10

// A TooFewError says that a sample is too small for a percentile.
type TooFewError struct {
	Percentile float64 // 0 to 100
	Have, Need int64   // numbers of samples
	// Effective is how many independent samples would be as good as these correlated ones. If that is
	// not known, it is Have.
	Effective float64
}

// Error names the percentile and says how many samples there are and how many it needs.
func (e *TooFewError) Error() string {
	worth := ""
	if e.Effective < 0.99*float64(e.Have) {
		worth = fmt.Sprintf(" (worth %.0f independent ones)", e.Effective)
	}
	return fmt.Sprintf("P%v needs %d samples, have %d%s: %d missing",
		e.Percentile, e.Need, e.Have, worth, e.Need-e.Have)
}

// Needed returns how many samples percentile p (more than 0, less than 100) needs. With so many,
// MinBeyond samples are expected above p, or below p if p is less than 50.
func Needed(p float64) int64 {
	side := math.Min(p, 100-p) / 100
	// 1e-6 corrects rounding errors, with which Ceil could return one sample more.
	return int64(math.Ceil(MinBeyond/side - 1e-6))
}

// Percentile returns the value at percentile p (more than 0, less than 100), in the histogram's
// unit. It returns a *TooFewError if h has too few samples, even if they are independent. It does
// not know whether they are; Sample.Interval does.
func Percentile(h *Histogram, p float64) (int64, error) {
	if !(p > 0 && p < 100) {
		return 0, fmt.Errorf("percentile %v: want more than 0 and less than 100", p)
	}
	if need, have := Needed(p), h.Count(); have < need {
		return 0, &TooFewError{Percentile: p, Have: have, Need: need, Effective: float64(have)}
	}
	return h.ValueAt(p), nil
}

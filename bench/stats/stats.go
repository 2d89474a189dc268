// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
)

// MinBeyond is the number of samples that must lie beyond a percentile before it is reported.
// With k samples beyond, the standard error of the exceedance probability is about 1/sqrt(k) of
// itself: 32 % at 10. Fewer samples describe single events rather than the tail.
const MinBeyond = 10

// A TooFewError says that a sample is too small for a percentile.
type TooFewError struct {
	Percentile float64 // 0 to 100
	Have, Need int64   // samples
	// Effective is the number of independent samples that Have are worth; Have if it is not
	// known.
	Effective float64
}

// Error names the percentile and how many samples are missing.
func (e *TooFewError) Error() string {
	worth := ""
	if e.Effective < 0.99*float64(e.Have) {
		worth = fmt.Sprintf(" (worth %.0f independent ones)", e.Effective)
	}
	return fmt.Sprintf("P%v needs %d samples, have %d%s: %d missing",
		e.Percentile, e.Need, e.Have, worth, e.Need-e.Have)
}

// Needed returns how many samples percentile p (0 to 100, exclusive) needs so that MinBeyond of
// them are expected on its thinner side.
func Needed(p float64) int64 {
	side := math.Min(p, 100-p) / 100
	// The subtraction above leaves errors of 1e-16 that Ceil would turn into
	// one sample more.
	return int64(math.Ceil(MinBeyond/side - 1e-6))
}

// Percentile returns the value at percentile p (0 to 100, exclusive) in the histogram's unit.
// It returns a *TooFewError when h could not support it even with independent samples. Only
// Sample.Interval knows how many independent samples they are worth.
func Percentile(h *Histogram, p float64) (int64, error) {
	if !(p > 0 && p < 100) {
		return 0, fmt.Errorf("percentile %v: want more than 0 and less than 100", p)
	}
	if need, have := Needed(p), h.Count(); have < need {
		return 0, &TooFewError{Percentile: p, Have: have, Need: need, Effective: float64(have)}
	}
	return h.ValueAt(p), nil
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Share is the share of samples that are at most Value, with its two-sided 95 % interval.
type Share struct {
	// Value is the value that the caller asked for, rounded up to the end of its bucket (0.1 %).
	Value   int64   `json:"value"`
	Samples int64   `json:"samples"`
	Beyond  int64   `json:"beyond"` // samples above Value
	Within  float64 `json:"within"` // share of samples that are at most Value, 0 to 1
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	// Effective is how many independent samples would give an interval of the same width.
	Effective float64 `json:"effective"`
	// Missing is the reason why the sample cannot support Within; "" if it can. Low is valid in both
	// cases.
	Missing string   `json:"missing,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// Within returns the share of samples that are at most v (0 to 2^37), or a *BlindError.
//
// The interval is that of Clopper and Pearson for the effective numbers, as in Korn and Graubard
// (1998). If only a few samples are beyond v, they hardly show their own correlation. Then the
// design effect of the MinBeyond largest samples is used.
func (s *Sample) Within(v int64) (Share, error) {
	if v < 0 || v > highest {
		return Share{}, fmt.Errorf("share within %d: want 0 to %d", v, int64(highest))
	}
	if s.n == 0 {
		return Share{}, &TooFewError{Need: MinBeyond}
	}
	b := bucketOf(v)
	share := Share{Samples: s.n, Beyond: s.beyond(b), Notes: s.notes()}
	_, share.Value = bucketRange(b)
	d, ok := s.design(b)
	if share.Beyond < MinBeyond {
		var tail design
		if tail, ok = s.design(s.bucketAt(s.n-MinBeyond) - 1); ok && tail.effect > d.effect {
			d = tail
		}
	}
	if !ok {
		return Share{}, s.blind()
	}
	n := float64(s.n)
	q := float64(share.Beyond) / n
	share.Within, share.Effective = 1-q, n/d.effect
	worth := d.worth(n)
	k := q * worth
	share.Low, share.High = 0, 1
	if k < worth {
		share.Low = 1 - distuv.Beta{Alpha: k + 1, Beta: worth - k}.Quantile(0.975)
	}
	if k > 0 {
		share.High = 1 - distuv.Beta{Alpha: k, Beta: worth - k + 1}.Quantile(0.025)
	}
	switch {
	case share.Beyond < MinBeyond:
		share.Missing = fmt.Sprintf("%d of %d samples are beyond, want at least %d", share.Beyond, s.n, MinBeyond)
	case d.fewEvents(min(q, 1-q)*n) > 1:
		share.Missing = fmt.Sprintf("the %d samples beyond come from too few events (%.0f independent ones of %d)",
			share.Beyond, share.Effective, s.n)
	}
	return share, nil
}

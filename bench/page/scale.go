// SPDX-License-Identifier: Apache-2.0

package page

import (
	"math"
	"slices"
)

// A scale maps values to pixels.
type scale struct {
	low, high float64 // of the values
	from, to  float64 // their pixels
	log       bool
}

func (s scale) at(v float64) float64 {
	f := func(v float64) float64 { return v }
	if s.log {
		f = func(v float64) float64 { return math.Log(max(v, s.low/10)) }
	}
	if s.high == s.low {
		return (s.from + s.to) / 2
	}
	return s.from + (f(v)-f(s.low))/(f(s.high)-f(s.low))*(s.to-s.from)
}

// inside keeps a value within the scale.
func (s scale) inside(v float64) float64 { return min(max(v, s.low), s.high) }

// logFrom is how many times the largest value is the smallest for a scale to
// be logarithmic.
const logFrom = 8

// scaleOf values that are more than 0: logarithmic where they differ much, from
// 0 otherwise, with some room.
func scaleOf(values []float64, from, to float64) scale {
	low, high := math.Inf(1), 0.0
	for _, v := range values {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	if high == 0 {
		return scale{0, 1, from, to, false}
	}
	if high > logFrom*low {
		return logScale(low, high, from, to)
	}
	return scale{0, high * 1.08, from, to, false}
}

func logScale(low, high, from, to float64) scale {
	room := max(math.Pow(high/low, 0.05), 1.1)
	return scale{low / room, high * room, from, to, true}
}

// ticks are round values, about as many as there is room for.
func (s scale) ticks(most int) []float64 {
	if s.log {
		return s.logTicks(most)
	}
	span := s.high - s.low
	if span <= 0 {
		return []float64{s.low}
	}
	step := 0.0
	power := math.Pow(10, math.Floor(math.Log10(span/float64(most))))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		step = m * power
		if span/step <= float64(most) {
			break
		}
	}
	var out []float64
	for v := math.Ceil(s.low/step-1e-9) * step; v <= s.high+step*1e-9; v += step {
		t := math.Round(v/step) * step
		if t == 0 {
			t = 0 // and not -0
		}
		out = append(out, t)
	}
	return out
}

func (s scale) logTicks(most int) []float64 {
	first, last := int(math.Floor(math.Log10(s.low))), int(math.Ceil(math.Log10(s.high)))
	steps := [][]float64{{1, 2, 5}, {1, 3}, {1}}
	if s.high < 12*s.low { // within a decade those would be few
		steps = slices.Insert(steps, 0, []float64{1, 1.5, 2, 3, 4, 5, 6, 8})
	}
	for _, mantissas := range steps {
		var out []float64
		for e := first; e <= last; e++ {
			for _, m := range mantissas {
				if v := m * math.Pow(10, float64(e)); v >= s.low && v <= s.high {
					out = append(out, v)
				}
			}
		}
		if len(out) <= most {
			return out
		}
	}
	// Every so many decades.
	every := (last-first)/most + 1
	var out []float64
	for e := first; e <= last; e += every {
		if v := math.Pow(10, float64(e)); v >= s.low && v <= s.high {
			out = append(out, v)
		}
	}
	return out
}

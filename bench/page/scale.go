// SPDX-License-Identifier: Apache-2.0

package page

import "math"

// A scale maps values to pixels.
type scale struct {
	low, high float64 // lowest and highest value of the scale
	from, to  float64 // pixels of low and high
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

// inside returns v, or the end of the scale if v is outside.
func (s scale) inside(v float64) float64 { return min(max(v, s.low), s.high) }

// logFrom: a scale is logarithmic if its largest value is at least logFrom times its smallest.
const logFrom = 8

// ends returns the smallest and the largest of the values above 0; 0 and 0 if there are none.
func ends(values []float64) (low, high float64) {
	for _, v := range values {
		if v > 0 && (low == 0 || v < low) {
			low = v
		}
		high = max(high, v)
	}
	return low, high
}

// scaleOf returns a scale for the values above 0, with some room at the ends. It is logarithmic if
// they differ much; otherwise it starts at 0.
func scaleOf(values []float64, from, to float64) scale {
	low, high := ends(values)
	switch {
	case high == 0:
		return scale{0, 1, from, to, false}
	case high > logFrom*low:
		return logScale(low, high, from, to)
	}
	return scale{0, high * 1.08, from, to, false}
}

func logScale(low, high, from, to float64) scale {
	room := max(math.Pow(high/low, 0.05), 1.1)
	return scale{low / room, high * room, from, to, true}
}

// ticks returns round values for the labels of an axis. There are about most of them, or fewer.
func (s scale) ticks(most int) []float64 {
	if s.high <= s.low {
		return []float64{s.low}
	}
	if s.log {
		factors := [][]float64{{1, 2, 5}, {1, 3}, {1}}
		if s.high < 12*s.low { // between powers of ten there would be too few ticks
			factors = append([][]float64{{1, 1.5, 2, 3, 4, 5, 6, 8}}, factors...)
		}
		return s.logTicks(most, 10, factors...)
	}
	span := s.high - s.low
	step := 0.0
	power := math.Pow(10, math.Floor(math.Log10(span/float64(most))))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		step = m * power
		if span/step <= float64(most) {
			break
		}
	}
	var out []float64
	for i := math.Ceil(s.low/step - 1e-9); i*step <= s.high+step*1e-9; i++ {
		out = append(out, i*step+0) // adding 0 turns -0 into 0
	}
	return out
}

// logTicks returns ticks for a logarithmic scale: powers of base times factors. It takes the first
// list of factors with few enough ticks. If all have too many, it takes every n-th power of base.
func (s scale) logTicks(most int, base float64, factors ...[]float64) []float64 {
	first, last := math.Log(s.low)/math.Log(base), math.Log(s.high)/math.Log(base)
	powers := func(every float64, factors []float64) (out []float64) {
		for e := math.Floor(first/every) * every; e <= last; e += every {
			for _, f := range factors {
				if v := f * math.Pow(base, e); v >= s.low && v <= s.high {
					out = append(out, v)
				}
			}
		}
		return out
	}
	for _, f := range factors {
		if out := powers(1, f); len(out) <= most {
			return out
		}
	}
	return powers(math.Ceil((last-first)/float64(most)), []float64{1})
}

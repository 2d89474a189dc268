// SPDX-License-Identifier: Apache-2.0

package stats

import "math"

// tQuantile returns the quantile p (0.5 < p < 1) of Student's t with df >= 1
// degrees of freedom, found by bisection of the distribution function.
func tQuantile(p float64, df int) float64 {
	lo, hi := 0.0, 1.0
	for tCDF(hi, df) < p {
		hi *= 2
	}
	for range 200 {
		mid := (lo + hi) / 2
		if tCDF(mid, df) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// tCDF is the distribution function for t >= 0: Abramowitz and Stegun 26.7.3
// and 26.7.4, finite sums for whole degrees of freedom.
func tCDF(t float64, df int) float64 {
	n := float64(df)
	theta := math.Atan(t / math.Sqrt(n))
	sin, cos := math.Sincos(theta)
	var a float64 // P(|T| <= t)
	if df%2 == 1 {
		sum, term := 0.0, cos
		for k := 1; k <= df-2; k += 2 {
			sum += term
			term *= cos * cos * float64(k+1) / float64(k+2)
		}
		a = 2 / math.Pi * (theta + sin*sum)
	} else {
		sum, term := 0.0, 1.0
		for k := 0; k <= df-2; k += 2 {
			sum += term
			term *= cos * cos * float64(k+1) / float64(k+2)
		}
		a = sin * sum
	}
	return (1 + a) / 2
}

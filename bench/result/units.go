// SPDX-License-Identifier: Apache-2.0

package result

import (
	"math"
	"strconv"
)

// DurationText renders a time in ns with three significant digits: "84.2 µs".
func DurationText(ns float64) string { return scaled(ns, "ns", "µs", "ms", "s") }

// BitsText renders a rate of traffic: "742 Mbit/s".
func BitsText(v float64) string { return scaled(v, "bit/s", "kbit/s", "Mbit/s", "Gbit/s") }

// BytesText renders a size in decimal units, like rates: "1.51 kB".
func BytesText(v float64) string { return scaled(v, "B", "kB", "MB", "GB") }

func scaled(v float64, units ...string) string {
	number, unit := scale(v, units)
	return number + " " + unit
}

// scale returns v with three significant digits, and its unit. Each unit is 1000 times the one
// before it.
func scale(v float64, units []string) (string, string) {
	i := 0
	for math.Abs(v) >= 999.5 && i < len(units)-1 {
		v /= 1000
		i++
	}
	digits := 0
	switch a := math.Abs(v); {
	case i == 0 && v == math.Trunc(v): // a whole number in the first unit stays whole
	case a < 9.995:
		digits = 2
	case a < 99.95:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64), units[i]
}

// PercentileText renders p: "P99.9".
func PercentileText(p float64) string { return "P" + numberText(p) }

func numberText(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// duration renders ns with three significant digits: "84.2 µs", "1.31 ms".
func duration(ns float64) string { return scaled(ns, "ns", "µs", "ms", "s") }

// bitrate renders bits/s: "742 Mbit/s".
func bitrate(v float64) string { return scaled(v, "bit/s", "kbit/s", "Mbit/s", "Gbit/s") }

// size renders bytes in powers of 1000, as link rates count.
func size(v float64) string { return scaled(v, "B", "kB", "MB", "GB") }

func scaled(v float64, units ...string) string {
	i := 0
	for math.Abs(v) >= 999.5 && i < len(units)-1 {
		v /= 1000
		i++
	}
	digits := 0
	switch {
	case i == 0 && v == math.Trunc(v): // whole units stay whole
	case math.Abs(v) < 9.995:
		digits = 2
	case math.Abs(v) < 99.95:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + units[i]
}

// count renders a whole number with commas.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		return "-" + s
	}
	return s
}

// times renders a ratio: "1.07×", "98.4×", "1,240×".
func times(v float64) string {
	switch {
	case v < 9.995:
		return fmt.Sprintf("%.2f×", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f×", v)
	}
	return count(int64(math.Round(v))) + "×"
}

// share renders a part of one in percent.
func share(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// percentile names p: "P99.9".
func percentile(p float64) string { return "P" + strconv.FormatFloat(p, 'f', -1, 64) }

func (v Value) duration() string {
	if v.Missing != "" {
		return "~"
	}
	return duration(float64(v.NS))
}

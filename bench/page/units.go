// SPDX-License-Identifier: Apache-2.0

package page

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/niclane/niclane/bench/result"
)

// tickText renders a time on an axis without trailing zeros; such values are round.
func tickText(ns float64) string { return trimmed(result.DurationText(ns)) }

func tickBits(v float64) string { return trimmed(result.BitsText(v)) }

func tickShare(v float64) string { return trimmed(share(v)) }

// trimmed removes trailing zeros after the decimal point: "1.50 ms" becomes "1.5 ms", "2.00 ms"
// becomes "2 ms".
func trimmed(s string) string {
	number, unit, ok := strings.Cut(s, " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	if !ok {
		return number
	}
	return number + " " + unit
}

// count renders a number with grouped thousands: "1,234,567".
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// long matches long numbers in a text.
var long = regexp.MustCompile(`\b[0-9]{5,15}\b`)

// grouped groups the thousands of all long numbers in a text.
func grouped(text string) string {
	return long.ReplaceAllStringFunc(text, func(s string) string {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return s
		}
		return count(n)
	})
}

// number renders a value with three significant digits, or with all digits before the decimal point
// if these are more.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < 1e15:
		return count(int64(v))
	case a >= 99.95:
		return count(int64(math.Round(v)))
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.0995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return small(v)
}

// small renders a value with two significant digits, without an exponent.
func small(v float64) string {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 2, 64), 64)
	if err != nil {
		r = v
	}
	return strconv.FormatFloat(r, 'f', -1, 64)
}

// short renders a number on an axis or a bar: "1.5 k".
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 999_500:
		return trimmed(number(v/1e6)) + " M"
	case a >= 9_999.5:
		return trimmed(number(v/1e3)) + " k"
	}
	return trimmed(number(v))
}

// times renders a ratio: "1.07".
func times(v float64) string {
	switch {
	case v < 0.0995:
		return small(v)
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return count(int64(math.Round(v)))
}

// share renders a part of a whole: "12.3 %".
func share(v float64) string {
	p := 100 * v
	switch a := math.Abs(p); {
	case a == 0 || a >= 99.95 && a < 100.05:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	case a >= 9.95:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	case a >= 0.1:
		return strconv.FormatFloat(p, 'f', 2, 64) + " %"
	}
	return small(p) + " %"
}

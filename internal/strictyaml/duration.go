// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Microseconds returns the kind of a time in µs. A file gives it as an integer without a unit,
// or as text with a unit.
func Microseconds(least, most int) Kind[int] {
	number := Integer(least, most)
	k := Kind[int]{
		Want: number.Want + " (microseconds), or with a unit: 50us, 10ms",
		Schema: Schema{"anyOf": []any{
			number.Schema,
			Schema{"type": "string", "pattern": `^[0-9]+(us|ms|s)$`},
		}},
	}
	k.Read = func(v Value) (int, bool) {
		text, plain, _ := v.Scalar()
		if plain && IsDecimal(text) {
			text += "us"
		} else if !shortExpr.MatchString(text) {
			v.Wrong(k.Want)
			return 0, false
		}
		if d, ok := duration(text, time.Duration(least)*time.Microsecond, time.Duration(most)*time.Microsecond); ok {
			return int(d / time.Microsecond), true
		}
		v.Wrong(k.Want)
		return 0, false
	}
	return k
}

// Duration returns the kind of a time that a file gives with its unit. The value is in ns.
func Duration(least, most time.Duration) Kind[int64] {
	k := Kind[int64]{
		Want: fmt.Sprintf("a time from %s to %s with its unit: us, ms, s, min or h", DurationText(int64(least)),
			DurationText(int64(most))),
		Schema: Schema{"type": "string", "pattern": durationPattern},
	}
	k.Read = func(v Value) (int64, bool) {
		text, plain, _ := v.Scalar()
		if plain && IsDecimal(text) && text != "0" {
			v.Failf("found %s, a number without a unit, want %s", text, k.Want)
			return 0, false
		}
		if durationExpr.MatchString(text) {
			if d, ok := duration(text, least, most); ok {
				return int64(d), true
			}
		}
		v.Wrong(k.Want)
		return 0, false
	}
	return k
}

const durationPattern = `^([0-9]{1,12}(\.[0-9]{1,9})?(us|ms|s|m|min|h)){1,6}$`

var (
	durationExpr = regexp.MustCompile(durationPattern)
	shortExpr    = regexp.MustCompile(`^[0-9]{1,12}(us|ms|s)$`)
)

func duration(text string, least, most time.Duration) (time.Duration, bool) {
	d, err := time.ParseDuration(strings.ReplaceAll(text, "min", "m"))
	return d, err == nil && d >= least && d <= most
}

// DurationText returns ns in the largest unit that divides it: "90s", "2h", "1.5us".
func DurationText(ns int64) string {
	for _, u := range []struct {
		name string
		ns   int64
	}{{"h", 3600e9}, {"m", 60e9}, {"s", 1e9}, {"ms", 1e6}} {
		if ns != 0 && ns%u.ns == 0 {
			return fmt.Sprint(ns/u.ns) + u.name
		}
	}
	whole := fmt.Sprintf("%d.%03d", ns/1000, ns%1000)
	return strings.TrimSuffix(strings.TrimRight(whole, "0"), ".") + "us"
}

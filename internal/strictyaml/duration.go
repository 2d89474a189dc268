// SPDX-License-Identifier: Apache-2.0

package strictyaml

import "time"

// Microseconds is an integer, or text with a unit.
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
		} else if !durationExpr().MatchString(text) {
			v.Wrong(k.Want)
			return 0, false
		}
		if d, err := time.ParseDuration(text); err == nil && d >= time.Duration(least)*time.Microsecond && d <= time.Duration(most)*time.Microsecond {
			return int(d / time.Microsecond), true
		}
		v.Wrong(k.Want)
		return 0, false
	}
	return k
}

var durationExpr = Lazy(`^[0-9]{1,12}(us|ms|s)$`)

// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"
	"regexp"
	"strconv"
)

const numberPattern = `^(0|[1-9][0-9]{0,11})(\.[0-9]{1,9})?$`

var numberExpr = regexp.MustCompile(numberPattern)

// Number returns the kind of a decimal fraction from least to most. It accepts no negative
// number and no exponent.
func Number(least, most float64) Kind[float64] {
	k := Kind[float64]{
		Want:   fmt.Sprintf("a number from %s to %s", NumberText(least), NumberText(most)),
		Schema: Schema{"type": "number", "minimum": least, "maximum": most},
	}
	k.Read = func(v Value) (float64, bool) {
		text, plain, _ := v.Scalar()
		if n, err := strconv.ParseFloat(text, 64); plain && numberExpr.MatchString(text) && err == nil && n >= least &&
			n <= most {
			return n, true
		}
		v.Wrong(k.Want)
		return 0, false
	}
	return k
}

// NumberText returns a number in the form that files use.
func NumberText(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// Share returns the kind of a share. The value is in permille; a file gives it in percent.
func Share(least, most int) Kind[int] {
	k := Kind[int]{
		Want:   fmt.Sprintf("a share from %s to %s in steps of 0.1%%", PermilleText(least), PermilleText(most)),
		Schema: Schema{"type": "string", "pattern": percentPattern},
	}
	k.Read = func(v Value) (int, bool) {
		text, _, _ := v.Scalar()
		if n, unit, ok := quantity(text, 4, 6); ok && unit == "%" {
			if permille, exact := whole(n, 10); exact && permille >= int64(least) && permille <= int64(most) {
				return int(permille), true
			}
		}
		v.Wrong(k.Want)
		return 0, false
	}
	return k
}

// steps is a series that a file gives by the keys from, to and step.
type steps struct{ from, to, step int }

// Series returns the kind of a series of integers: one integer, a list, or all integers from one
// to another by a step ({from: 110, to: 4400, step: 110}). The result ascends. limit is the
// largest number of integers.
func Series(what string, least, most, limit int) Kind[[]int] {
	one := Integer(least, most)
	keys := []Key[steps]{
		Of("from", one, "", "The first.", func(s *steps, x int) { s.from = x }),
		Of("to", one, "", "The last, which the steps have to meet.", func(s *steps, x int) { s.to = x }),
		Of("step", Integer(1, most), "", "From each to the next.", func(s *steps, x int) { s.step = x }),
	}
	k := Kind[[]int]{
		Want: fmt.Sprintf("%s from %d to %d, a list of them in ascending order, or {from: , to: , step: }", what, least,
			most),
		Schema: Schema{"anyOf": []any{
			one.Schema,
			Schema{"type": "array", "minItems": 1, "maxItems": limit, "items": one.Schema},
			Object(keys, "From one to another by a step.", "from", "to", "step"),
		}},
	}
	k.Read = func(v Value) ([]int, bool) {
		if v.IsMapping() {
			return v.steps(keys, k.Want, limit)
		}
		n, list := v.Len()
		if n > limit {
			v.Failf("found a list of %d, want at most %d", n, limit)
			return nil, false
		}
		if _, _, scalar := v.Scalar(); n == 0 && !scalar {
			v.Wrong(k.Want)
			return nil, false
		}
		item := one
		if !list {
			item = integer(k.Want, least, most)
		}
		var out []int
		ok := true
		for _, x := range v.Items() {
			n, good := item.Read(x)
			if good && len(out) > 0 && n <= out[len(out)-1] {
				x.Failf("found %d after %d, want ascending order", n, out[len(out)-1])
				good = false
			}
			ok = ok && good
			out = append(out, n)
		}
		return out, ok
	}
	return k
}

func (v Value) steps(keys []Key[steps], want string, limit int) ([]int, bool) {
	var s steps
	bad, _ := Section(v, keys, want, &s)
	for _, name := range Names(keys) {
		if !v.r.Given(Join(v.path, name)) {
			v.Failf("%s is missing, want {from: , to: , step: }", name)
			bad = append(bad, name)
		}
	}
	switch {
	case len(bad) > 0:
		return nil, false
	case s.to <= s.from:
		v.Failf("found from %d to %d, want to above from", s.from, s.to)
		return nil, false
	case (s.to-s.from)%s.step != 0:
		v.Failf("found steps of %d, which do not lead from %d to %d, want to: %d or %d", s.step, s.from, s.to,
			s.to-(s.to-s.from)%s.step, s.to-(s.to-s.from)%s.step+s.step)
		return nil, false
	case (s.to-s.from)/s.step >= limit:
		v.Failf("found %d steps, want at most %d", (s.to-s.from)/s.step+1, limit)
		return nil, false
	}
	var out []int
	for n := s.from; n <= s.to; n += s.step {
		out = append(out, n)
	}
	return out, true
}

// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rangesPattern matches a list of integers and ranges in one text.
const rangesPattern = `^[0-9]+(-[0-9]+)?( *, *[0-9]+(-[0-9]+)?)*$`

var rangesExpr = regexp.MustCompile(rangesPattern)

// IsRanges reports whether a text looks like a list of integers and ranges.
func IsRanges(text string) bool { return rangesExpr.MatchString(text) }

// Integers returns the kind of a list of integers and ranges, in all forms of adqsetup and YAML:
// 1, "0-3,8", [1, "2-3"]. The integers are from least to top. The result ascends. most is the
// largest number of integers.
func Integers(what string, least, top, most int) Kind[[]int] {
	one := fmt.Sprintf("%s from %d to %d", what, least, top)
	number := Schema{"type": "integer", "minimum": least, "maximum": top}
	text := Schema{"type": "string", "pattern": rangesPattern}
	k := Kind[[]int]{
		Want: one + ", a range (8-11), or a list of these",
		Schema: Schema{"anyOf": []any{number, text, Schema{
			"type": "array", "minItems": 1, "items": Schema{"anyOf": []any{number, text}},
		}}},
	}
	k.Read = func(v Value) ([]int, bool) {
		if v.Empty() {
			v.Wrong(k.Want)
			return nil, false
		}
		have := map[int]bool{}
		ok := true
		for _, item := range v.Items() {
			ok = item.ranges(have, least, top, most, one) && ok
		}
		ids := make([]int, 0, len(have))
		for id := range have {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids, ok && len(ids) > 0
	}
	return k
}

// ranges adds the integers of a text such as "0-3,8" to have.
func (v Value) ranges(have map[int]bool, least, top, most int, want string) bool {
	text, _, ok := v.Scalar()
	if !ok {
		v.Wrong(want + " or a range of them")
		return false
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		first, err1 := strconv.Atoi(lo)
		last, err2 := strconv.Atoi(hi)
		switch {
		case err1 != nil || err2 != nil || !IsDecimal(lo) || !IsDecimal(hi) || first < least || last > top:
			found := Quote(part)
			if !isRange && IsDecimal(part) {
				found = part
			}
			v.Failf("found %s, want %s", found, want)
			return false
		case last < first:
			v.Failf("found the range %s, want %d-%d", part, last, first)
			return false
		}
		for id := first; id <= last; id++ {
			if have[id] {
				v.Failf("found %d twice in one list", id)
				return false
			}
			if have[id] = true; len(have) > most {
				v.Failf("found more than %d in one list, want at most that many", most)
				return false
			}
		}
	}
	return true
}

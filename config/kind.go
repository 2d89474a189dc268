// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// schema is a JSON Schema, or a part of one.
type schema = map[string]any

// A kind is a type of value: what it is called in messages and in the
// reference, its JSON Schema, and how it is read. read reports problems itself
// and returns false after one.
type kind[T any] struct {
	want   string
	schema schema
	read   func(v value) (T, bool)
}

// lazy compiles a regular expression when it is first needed: most runs of most
// commands need none, and all of them would wait for it.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// decimal is an integer as files have it; YAML's other spellings (0x10, 010,
// 1_000) are traps more than help.
var decimal = lazy(`^-?(0|[1-9][0-9]{0,17})$`)

func integer(least, most int) kind[int] {
	k := kind[int]{
		want:   fmt.Sprintf("an integer from %d to %d", least, most),
		schema: schema{"type": "integer", "minimum": least, "maximum": most},
	}
	k.read = func(v value) (int, bool) {
		text, plain, _ := v.scalar()
		if n, err := strconv.Atoi(text); plain && decimal().MatchString(text) && err == nil && n >= least && n <= most {
			return n, true
		}
		v.wrong(k.want)
		return 0, false
	}
	return k
}

// boolean takes adqsetup's words except 1 and 0.
func boolean() kind[bool] {
	k := kind[bool]{
		want: "on or off (or true, false, yes, no)",
		schema: schema{"anyOf": []any{
			schema{"type": "boolean"},
			schema{"type": "string", "pattern": anyCase("on", "off", "yes", "no", "true", "false")},
		}},
	}
	k.read = func(v value) (bool, bool) {
		text, _, _ := v.scalar()
		switch strings.ToLower(text) {
		case "on", "true", "yes":
			return true, true
		case "off", "false", "no":
			return false, true
		}
		v.wrong(k.want)
		return false, false
	}
	return k
}

func word(words ...string) kind[string] {
	k := kind[string]{
		want:   oneOf(words),
		schema: schema{"enum": words},
	}
	k.read = func(v value) (string, bool) {
		if text, _, ok := v.scalar(); ok && slices.Contains(words, text) {
			return text, true
		}
		v.wrong(k.want)
		return "", false
	}
	return k
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// pattern is text that a regular expression describes; why, if not nil, says
// what else may be wrong with it.
func pattern(want, expr string, why func(string) string) kind[string] {
	re := lazy(expr)
	k := kind[string]{want: want, schema: schema{"type": "string", "pattern": expr}}
	k.read = func(v value) (string, bool) {
		text, _, ok := v.scalar()
		if !ok || !re().MatchString(text) {
			v.wrong(k.want)
			return "", false
		}
		if !v.isText() {
			v.failf("found %s, which YAML takes for a number or a truth value; want quotes around it", v.found())
			return "", false
		}
		if why != nil {
			if msg := why(text); msg != "" {
				v.failf("found %s, %s", quote(text), msg)
				return "", false
			}
		}
		return text, true
	}
	return k
}

// anyCase is the regular expression of words in any case; JSON Schema's have
// no flag for it.
func anyCase(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		var b strings.Builder
		for _, c := range w {
			if up := strings.ToUpper(string(c)); up != string(c) {
				b.WriteString("[" + up + string(c) + "]")
			} else {
				b.WriteRune(c)
			}
		}
		out[i] = b.String()
	}
	return "^(" + strings.Join(out, "|") + ")$"
}

const rangesPattern = `^[0-9]+(-[0-9]+)?( *, *[0-9]+(-[0-9]+)?)*$`

// integers is a list of integers and ranges in any of adqsetup's and YAML's
// spellings: 1, "0-3,8", [1, "2-3"]. The result is ascending. most is the
// largest number of them.
func integers(what string, least, top, most int) kind[[]int] {
	one := fmt.Sprintf("%s from %d to %d", what, least, top)
	number := schema{"type": "integer", "minimum": least, "maximum": top}
	text := schema{"type": "string", "pattern": rangesPattern}
	k := kind[[]int]{
		want: one + ", a range (8-11), or a list of these",
		schema: schema{"anyOf": []any{number, text, schema{
			"type": "array", "minItems": 1, "items": schema{"anyOf": []any{number, text}},
		}}},
	}
	k.read = func(v value) ([]int, bool) {
		if v.empty() {
			v.wrong(k.want)
			return nil, false
		}
		have := map[int]bool{}
		ok := true
		for _, item := range v.items() {
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

// ranges adds the integers of "0-3,8" to have.
func (v value) ranges(have map[int]bool, least, top, most int, want string) bool {
	text, _, ok := v.scalar()
	if !ok {
		v.wrong(want + " or a range of them")
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
		case err1 != nil || err2 != nil || !decimal().MatchString(lo) || !decimal().MatchString(hi) || first < least || last > top:
			found := quote(part)
			if !isRange && decimal().MatchString(part) {
				found = part
			}
			v.failf("found %s, want %s", found, want)
			return false
		case last < first:
			v.failf("found the range %s, want %d-%d", part, last, first)
			return false
		}
		for id := first; id <= last; id++ {
			if have[id] {
				v.failf("found %d twice in one list", id)
				return false
			}
			if have[id] = true; len(have) > most {
				v.failf("found more than %d in one list, want at most that many", most)
				return false
			}
		}
	}
	return true
}

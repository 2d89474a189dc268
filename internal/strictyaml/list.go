// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"
	"regexp"
	"strings"
)

// Nested returns the kind of a section within another section. ref is the name of its schema.
// start returns the initial value, which the keys then change.
func Nested[T any](ref, want string, keys func() []Key[T], start func() T) Kind[T] {
	return Kind[T]{
		Want:   want,
		Schema: Schema{"$ref": "#/$defs/" + ref},
		Read: func(v Value) (T, bool) {
			t := start()
			_, ok := Section(v, keys(), want, &t)
			return t, ok
		},
	}
}

// Sections returns the kind of a list of 1 to limit sections.
func Sections[T any](ref, want string, limit int, keys func() []Key[T], start func(item Value) T) Kind[[]T] {
	k := Kind[[]T]{
		Want:   want,
		Schema: Schema{"type": "array", "minItems": 1, "maxItems": limit, "items": Schema{"$ref": "#/$defs/" + ref}},
	}
	k.Read = func(v Value) ([]T, bool) {
		switch n, list := v.Len(); {
		case !list || n == 0:
			v.Wrong(want)
			return nil, false
		case n > limit:
			v.Failf("found %d, want at most %d", n, limit)
			return nil, false
		}
		var out []T
		for _, item := range v.Items() {
			t := start(item)
			// Append also an item that is not a mapping, so that the indexes of later items
			// stay correct.
			Section(item, keys(), "a mapping of keys: "+strings.Join(Names(keys()), ", "), &t)
			out = append(out, t)
		}
		return out, true
	}
	return k
}

// Mapping returns the kind of a mapping whose names the file chooses. Its values are of one
// kind. names is the regular expression for a name; name describes a name in messages.
func Mapping[V any](want, names, name string, value Kind[V]) Kind[map[string]V] {
	expr := regexp.MustCompile(names)
	return Kind[map[string]V]{
		Want: want,
		Schema: Schema{"type": "object", "minProperties": 1,
			"propertyNames": Schema{"pattern": names}, "additionalProperties": value.Schema},
		Read: func(v Value) (map[string]V, bool) {
			entries := v.Entries()
			if len(entries) == 0 {
				v.Wrong(want)
				return nil, false
			}
			out := map[string]V{}
			ok := true
			for _, e := range entries {
				path := Join(v.path, e.Name)
				if first, twice := v.r.Add(path, e.At); twice {
					v.r.FailAt(e.At, path, "given a second time, first in line %d", first.Line)
					ok = false
					continue
				}
				if !expr.MatchString(e.Name) {
					v.r.FailAt(e.At, path, "found the name %s, want %s", Quote(e.Name), name)
					ok = false
					continue
				}
				ev, good := e.Value(path)
				if good {
					out[e.Name], good = value.Read(ev)
				}
				ok = ok && good
			}
			return out, ok
		},
	}
}

// Text returns the kind of a scalar of any YAML type. The value is the scalar as written.
func Text(want string, limit int) Kind[string] {
	return Kind[string]{
		Want:   want,
		Schema: Schema{"type": []string{"string", "number", "boolean"}},
		Read: func(v Value) (string, bool) {
			text, _, ok := v.Scalar()
			switch {
			case !ok:
				v.Wrong(want)
				return "", false
			case len(text) > limit:
				v.Failf("found a text of %d bytes, want at most %d", len(text), limit)
				return "", false
			case strings.ContainsRune(text, 0):
				v.Failf("found a NUL character, want none")
				return "", false
			}
			return text, true
		},
	}
}

// Texts returns the kind of a list of 1 to limit texts.
func Texts(want string, limit int, item Kind[string]) Kind[[]string] {
	return Kind[[]string]{
		Want:   want,
		Schema: Schema{"type": "array", "minItems": 1, "maxItems": limit, "items": item.Schema},
		Read: func(v Value) ([]string, bool) {
			switch n, list := v.Len(); {
			case !list || n == 0:
				v.Wrong(want)
				return nil, false
			case n > limit:
				v.Failf("found %d, want at most %d", n, limit)
				return nil, false
			}
			var out []string
			ok := true
			for _, x := range v.Items() {
				s, good := item.Read(x)
				ok = ok && good
				out = append(out, s)
			}
			return out, ok
		},
	}
}

// OneOrList returns the kind of one value, or of a list of 1 to limit such values.
func OneOrList[T any](one Kind[T], limit int) Kind[[]T] {
	k := Kind[[]T]{
		Want: one.Want + ", or a list of these",
		Schema: Schema{"anyOf": []any{one.Schema,
			Schema{"type": "array", "minItems": 1, "maxItems": limit, "items": one.Schema}}},
	}
	k.Read = func(v Value) ([]T, bool) {
		if n, list := v.Len(); list && (n == 0 || n > limit) {
			v.Failf("found a list of %s, want 1 to %d", fmt.Sprint(n), limit)
			return nil, false
		}
		var out []T
		ok := true
		for _, x := range v.Items() {
			t, good := one.Read(x)
			ok = ok && good
			out = append(out, t)
		}
		return out, ok
	}
	return k
}

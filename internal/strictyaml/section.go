// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// A Key is one line of the table that defines a file format. The reader, the JSON Schema and
// the reference come from the table. A Key stores its value in a T.
type Key[T any] struct {
	Name    string
	Doc     string // sentences for the reference and the editor
	Preset  string // the value if the key is absent, for the reference
	Want    string // the allowed values, for the reference
	Schema  Schema
	Read    func(Value, *T)
	Refused string // for a known key that is refused: why, and the replacement
}

// Of returns a key with a value of the kind k. set stores the value.
func Of[T, V any](name string, k Kind[V], preset, doc string, set func(*T, V)) Key[T] {
	return Key[T]{
		Name: name, Doc: doc, Preset: preset, Want: k.Want, Schema: k.Schema,
		Read: func(v Value, t *T) {
			if x, ok := k.Read(v); ok {
				set(t, x)
			}
		},
	}
}

// Refuse returns a key that Section refuses. why gives the reason and the replacement.
func Refuse[T any](name, why string) Key[T] { return Key[T]{Name: name, Refused: why} }

// Find returns the key for a name in a file, or nil if there is none.
func Find[T any](keys []Key[T], name string) *Key[T] {
	name = normal(name)
	for i := range keys {
		if keys[i].Name == name {
			return &keys[i]
		}
	}
	return nil
}

// Names returns the names of the accepted keys.
func Names[T any](keys []Key[T]) []string {
	var out []string
	for _, k := range keys {
		if k.Refused == "" {
			out = append(out, k.Name)
		}
	}
	return out
}

// Section reads the mapping v by its table of keys, and stores the values in t. ok is false if v
// is not a mapping; want then describes in the message what is allowed. bad are the keys that
// could not be read, and the unknown keys as written in the file.
func Section[T any](v Value, keys []Key[T], want string, t *T) (bad []string, ok bool) {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		if text, plain, _ := v.Scalar(); plain && strings.Contains(text, ":") {
			want += ", with a space after each colon"
		}
		v.Wrong(want)
		return nil, false
	}
	for _, e := range v.Entries() {
		k := Find(keys, e.Name)
		if k == nil {
			bad = append(bad, e.Name)
			hint := Suggest(normal(e.Name), Names(keys))
			if val := (Value{node: e.node}); m.IsFlowStyle && val.IsNull() {
				hint = "; within {}, a list such as 80,443 needs brackets or quotes"
			}
			v.r.FailAt(e.At, Join(v.path, e.Name), "unknown key%s", hint)
			continue
		}
		path := Join(v.path, k.Name)
		if first, twice := v.r.Add(path, e.At); twice {
			v.r.FailAt(e.At, path, "given a second time, first in line %d", first.Line)
			continue
		}
		if k.Refused != "" {
			v.r.FailAt(e.At, path, "%s", k.Refused)
			continue
		}
		before := len(v.r.errs)
		if kv, ok := e.Value(path); ok {
			k.Read(kv, t)
		}
		if len(v.r.errs) > before {
			bad = append(bad, k.Name)
		}
	}
	return bad, true
}

var plainName = regexp.MustCompile(`^[0-9A-Za-z_-]+$`)

// Join adds a name to a path. It quotes a name that could be confused with a path, or cannot be
// printed.
func Join(path, name string) string {
	if len(name) > 60 || !plainName.MatchString(name) {
		name = Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// Index returns the path of an item of a list; i counts from 0.
func Index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// normal returns a key's name in lower case and with - for _, as the tables have it. adqsetup
// also accepts both cases, and _ for -.
func normal(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// SPDX-License-Identifier: Apache-2.0

// Package schematest generates a published JSON schema from the Go type of a record that niclane
// writes. It is for tests that compare the schema with the type.
package schematest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	reflecting "github.com/invopop/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/niclane/niclane/internal/testing/must"
)

// A Record describes a schema and the Go type from which it is generated.
type Record struct {
	// File is the schema's file. Dirs are the directories whose Go comments become descriptions in the
	// schema. All paths are relative to the top of the source tree.
	File string
	Dirs []string
	// Value is a pointer to a value of the record's type. If Version is not "", the record has a key
	// "schema" with this version.
	Value              any
	Version            string
	Title, Description string
	// More are values of further types. Only schemas that Mapper returns refer to these types.
	More []any
	// Lists is true if the record never has null in place of a list or a map.
	Lists bool
	// Mapper returns the schema of a type that defines its own JSON form. It may be nil.
	Mapper func(reflect.Type) *reflecting.Schema
	// Nullable reports whether Go may write null for a schema that is neither a list nor a map. It may
	// be nil.
	Nullable func(*reflecting.Schema) bool
	// Adjust adds to the schema what the Go types do not say. It may be nil.
	Adjust func(*reflecting.Schema)
}

// generate returns the schema of the Go types, with their comments as descriptions.
func (r *Record) generate(t *testing.T) []byte {
	t.Helper()
	from := &reflecting.Reflector{Anonymous: true, Mapper: r.Mapper, Namer: func(t reflect.Type) string {
		if t.Name() == "" {
			return "" // a list or a map
		}
		return qualified(t) // six packages have a type Result
	}}
	for _, dir := range r.Dirs {
		must.Do(t, from.AddGoComments("github.com/niclane/niclane", dir, reflecting.WithFullComment()))
	}
	for k, text := range from.CommentMap {
		from.CommentMap[k] = strings.Join(strings.Fields(text), " ")
	}
	s := from.Reflect(r.Value)
	for _, v := range r.More {
		maps.Copy(s.Definitions, from.Reflect(v).Definitions)
	}
	s.Title, s.Description = r.Title, r.Description
	top := qualified(reflect.TypeOf(r.Value).Elem())
	for name, d := range s.Definitions {
		if d.Properties == nil {
			continue
		}
		for p := d.Properties.Oldest(); p != nil; p = p.Next() {
			if name == top && p.Key == "schema" && r.Version != "" {
				p.Value.Const = r.Version
			}
			x := p.Value
			if !r.Lists && (x.Type == "array" || x.Type == "object") || r.Nullable != nil && r.Nullable(x) {
				old := *x
				old.Description = ""
				*x = reflecting.Schema{Description: x.Description, AnyOf: []*reflecting.Schema{&old, {Type: "null"}}}
			}
		}
	}
	if r.Adjust != nil {
		r.Adjust(s)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	must.Do(t, enc.Encode(s))
	return b.Bytes()
}

// Text is a Mapper: the schema of types that encoding/json writes as text, nil for others.
func Text(t reflect.Type) *reflecting.Schema {
	if t == reflect.TypeFor[time.Time]() { // known to the library
		return nil
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return &reflecting.Schema{Type: "string"}
	}
	return nil
}

func qualified(t reflect.Type) string { return path.Base(t.PkgPath()) + "." + t.Name() }

// Current fails the test if the schema in the file differs from that of the types. If update is
// true, it writes the file first. The test must run at the top of the source tree.
func (r *Record) Current(t *testing.T, update bool) {
	t.Helper()
	want := r.generate(t)
	if update {
		must.Do(t, os.WriteFile(r.File, want, 0o644))
	}
	got, err := os.ReadFile(r.File)
	must.Do(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what the types say: run go generate (-want +got):\n%s", r.File, diff)
	}
}

// Holds returns a function that checks a JSON text against the schema in the file.
func (r *Record) Holds(t *testing.T) func(text []byte) error {
	t.Helper()
	c := jsonschema.NewCompiler()
	schema, err := c.Compile(r.File)
	must.Do(t, err)
	return func(text []byte) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		must.Do(t, err)
		return schema.Validate(v)
	}
}

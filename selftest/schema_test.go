// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	reflecting "github.com/invopop/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write docs/selftest.schema.json")

const schemaFile = "docs/selftest.schema.json"

// makeSchema describes the Go types, with their comments, from the top of the
// source tree.
func makeSchema(t *testing.T) []byte {
	t.Helper()
	r := &reflecting.Reflector{Anonymous: true, Namer: func(t reflect.Type) string {
		if t.Name() == "" {
			return "" // a list, a map
		}
		return path.Base(t.PkgPath()) + "." + t.Name()
	}}
	for _, dir := range []string{"selftest", "device", "plan", "verify", "bench/stats"} {
		if err := r.AddGoComments("github.com/niclane/niclane", dir, reflecting.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	for k, text := range r.CommentMap {
		r.CommentMap[k] = strings.Join(strings.Fields(text), " ")
	}
	s := r.Reflect(&Record{})
	s.Title, s.Description = "selftest.json of niclane", "What one selftest of one card showed. Times are in ns, rates in bit/s."
	for name, d := range s.Definitions {
		if d.Properties == nil {
			continue
		}
		for p := d.Properties.Oldest(); p != nil; p = p.Next() {
			if name == "selftest.Record" && p.Key == "schema" {
				p.Value.Const = Schema
			}
			// Go writes null for a list or a map that is not there.
			if x := p.Value; x.Type == "array" || x.Type == "object" {
				old := *x
				old.Description = ""
				*x = reflecting.Schema{Description: x.Description, AnyOf: []*reflecting.Schema{&old, {Type: "null"}}}
			}
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSchemaIsCurrent, with -update, writes the schema.
func TestSchemaIsCurrent(t *testing.T) {
	t.Chdir("..")
	want := makeSchema(t)
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run go generate ./selftest (-want +got):\n%s", diff)
	}
}

// What selftest writes holds to the schema; what is no record does not.
func TestSchemaHolds(t *testing.T) {
	text, err := os.ReadFile("../" + schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("selftest", tree); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("selftest")
	if err != nil {
		t.Fatal(err)
	}
	holds := func(b []byte) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	records := map[string]*Record{"full": fixture(), "early": {Schema: Schema}}
	// One of a real card, where somebody has one.
	if path := os.Getenv("NICLANE_SELFTEST"); path != "" {
		if records["real"], err = ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range records {
		var b bytes.Buffer
		if err := Write(&b, r); err != nil {
			t.Fatal(err)
		}
		if err := holds(b.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var b bytes.Buffer
	if err := Write(&b, fixture()); err != nil {
		t.Fatal(err)
	}
	for old, new := range map[string]string{`"niclane.selftest/1"`: `"niclane.selftest/0"`, `"outcome"`: `"outcomes"`, `"cpus": 0`: `"cpus": "0"`} {
		changed := bytes.Replace(b.Bytes(), []byte(old), []byte(new), 1)
		if bytes.Equal(changed, b.Bytes()) {
			t.Fatalf("no %s in the record", old)
		}
		if holds(changed) == nil {
			t.Errorf("%s in the place of %s holds", new, old)
		}
	}
}

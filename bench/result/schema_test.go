// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	reflecting "github.com/invopop/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/niclane/niclane/bench/hiccup"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/search"
	"github.com/niclane/niclane/bench/stats"
)

const schemaFile = "docs/result.schema.json"

// makeSchema describes the Go types, with their comments, from the top of the
// source tree.
func makeSchema(t *testing.T) []byte {
	t.Helper()
	r := &reflecting.Reflector{Anonymous: true, Mapper: ownForms, Namer: func(t reflect.Type) string {
		if t.Name() == "" {
			return "" // a list, a map
		}
		return path.Base(t.PkgPath()) + "." + t.Name() // six packages have a Result
	}}
	for _, dir := range []string{"bench", "device", "internal/polls"} {
		if err := r.AddGoComments("github.com/niclane/niclane", dir, reflecting.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	for k, text := range r.CommentMap {
		r.CommentMap[k] = strings.Join(strings.Fields(text), " ")
	}
	s := r.Reflect(&Result{})
	s.Title, s.Description = "result.json of niclane", "What one run of an experiment measured. Durations are in ns, rates of traffic in bit/s, sizes in bytes."
	for name, d := range s.Definitions {
		if d.Properties == nil {
			continue
		}
		for p := d.Properties.Oldest(); p != nil; p = p.Next() {
			if name == "result.Result" && p.Key == "schema" {
				p.Value.Const = Schema
			}
			// Go writes null for a list, a map or a histogram that is not there.
			x := p.Value
			if x.Type == "array" || x.Type == "object" || strings.HasPrefix(x.Ref, "#/$defs/stats.") || strings.HasPrefix(x.Ref, "#/$defs/search.Test") {
				old := *x
				old.Description = ""
				*x = reflecting.Schema{Description: x.Description, AnyOf: []*reflecting.Schema{&old, {Type: "null"}}}
			}
		}
	}
	// A power.Result embeds a *power.Estimate, and has none of its keys without.
	d := s.Definitions["power.Result"]
	d.Required = slices.DeleteFunc(d.Required, func(key string) bool { return slices.Contains(s.Definitions["power.Estimate"].Required, key) })
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ownForms are those of types that write themselves.
func ownForms(t reflect.Type) *reflecting.Schema {
	fields := func(text string, required []string, props ...any) *reflecting.Schema {
		s := &reflecting.Schema{Type: "object", Description: text, Properties: reflecting.NewProperties(), Required: required, AdditionalProperties: reflecting.FalseSchema}
		for i := 0; i < len(props); i += 2 {
			s.Properties.Set(props[i].(string), props[i+1].(*reflecting.Schema))
		}
		return s
	}
	integer, number := &reflecting.Schema{Type: "integer"}, &reflecting.Schema{Type: "number"}
	coded := &reflecting.Schema{Type: "string", Description: "HdrHistogram's V2 format, compressed, base64"}
	switch t {
	case reflect.TypeFor[stats.Histogram]():
		return fields("A histogram of three significant digits, with a summary for those who read no HDR.", []string{"count"},
			"count", integer, "min", integer, "mean", number, "p50", integer, "p99", integer, "max", integer, "clamped", integer, "hdr", coded)
	case reflect.TypeFor[stats.Series]():
		return fields("Histograms of windows of equal length, in the order of time; an empty string is an empty window.", []string{"windowNs", "count", "hdr"},
			"windowNs", integer, "clamped", integer, "count", integer, "hdr", &reflecting.Schema{Type: "array", Items: coded})
	}
	return nil
}

// TestSchemaIsCurrent, with -update, writes the schema.
func TestSchemaIsCurrent(t *testing.T) {
	t.Chdir("../..")
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
		t.Errorf("run go generate ./bench/result (-want +got):\n%s", diff)
	}
}

// A result that niclane writes holds to the schema; what is no result does not.
func TestSchemaHolds(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("result", tree); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("result")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(r *Result) error {
		var b bytes.Buffer
		if err := Write(&b, r); err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(&b)
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	full := fixture()
	full.Searches = []Search{{Variant: "idle", Result: &search.Result{Tests: []*search.Test{{Estimate: &stats.Estimate{}}}, Levels: []search.Level{{}}}}}
	full.HostNoise = []hiccup.Result{{CPUs: []hiccup.CPU{{Late: stats.NewHistogram()}}}}
	full.Partial = &Partial{Phase: "repeats", Reason: "interrupted"}
	w := &full.Windows[0]
	w.Power = []power.Result{{Estimate: &power.Estimate{}}, {NotMeasured: "no sensor"}}
	w.Hops = []Hop{{Name: "switch", Reach: ReachNone, Bytes: stats.NewHistogram()}}
	w.Load.Statuses = map[int]int64{200: 7}
	for name, r := range map[string]*Result{"full": full, "early": {Schema: Schema, Experiment: full.Experiment}} {
		if err := validate(r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A result of a real run, where somebody has one.
	if path := os.Getenv("NICLANE_RESULT"); path != "" {
		r, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(r); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	other := fixture()
	other.Schema = "niclane.result/1"
	if err := validate(other); err == nil {
		t.Error("another version holds")
	}
	for name, text := range map[string]string{"key": `{"schema": "niclane.result/2", "titel": "x"}`, "type": `{"schema": "niclane.result/2", "windows": 7}`} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err == nil {
			t.Errorf("%s: it holds", name)
		}
	}
}

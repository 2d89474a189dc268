// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	reflecting "github.com/invopop/jsonschema"

	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/search"
	"github.com/niclane/niclane/internal/testing/schematest"
)

// published is the schema that is published for result.json.
var published = schematest.Record{
	File: "docs/result.schema.json", Dirs: []string{"bench", "lane/device", "internal/traffic/napi"},
	Value: &Result{}, Version: Schema, Mapper: ownForms,
	Title: "result.json of niclane",
	Description: "What one run of an experiment measured. Durations are in ns, rates of traffic in bit/s, sizes in " +
		"bytes.",
	// Histograms and tests may be null.
	Nullable: func(s *reflecting.Schema) bool {
		return strings.HasPrefix(s.Ref, "#/$defs/stats.") || strings.HasPrefix(s.Ref, "#/$defs/search.Test")
	},
	// power.Result embeds a *power.Estimate. If this is nil, the keys of the Estimate are missing.
	Adjust: func(s *reflecting.Schema) {
		d := s.Definitions["power.Result"]
		d.Required = slices.DeleteFunc(d.Required,
			func(key string) bool { return slices.Contains(s.Definitions["power.Estimate"].Required, key) })
	},
}

// ownForms returns the schemas of types that write their JSON themselves.
func ownForms(t reflect.Type) *reflecting.Schema {
	fields := func(text string, required []string, props ...any) *reflecting.Schema {
		s := &reflecting.Schema{Type: "object", Description: text, Properties: reflecting.NewProperties(),
			Required: required, AdditionalProperties: reflecting.FalseSchema}
		for i := 0; i < len(props); i += 2 {
			s.Properties.Set(props[i].(string), props[i+1].(*reflecting.Schema))
		}
		return s
	}
	integer, number := &reflecting.Schema{Type: "integer"}, &reflecting.Schema{Type: "number"}
	coded := &reflecting.Schema{Type: "string", Description: "HdrHistogram's V2 format, compressed, base64"}
	switch t {
	case reflect.TypeFor[stats.Histogram]():
		return fields("A histogram of three significant digits, with a summary for those who read no HDR.",
			[]string{"count"},
			"count", integer, "min", integer, "mean", number, "p50", integer, "p99", integer, "max", integer, "clamped",
			integer, "hdr", coded)
	case reflect.TypeFor[stats.Series]():
		return fields("Histograms of windows of equal length, in the order of time; an empty string is an empty window.", []string{"windowNs", "count", "hdr"},
			"windowNs", integer, "clamped", integer, "count", integer, "hdr",
			&reflecting.Schema{Type: "array", Items: coded})
	}
	return nil
}

// TestSchemaIsCurrent compares the published schema with the types. With -update, it writes the
// schema.
func TestSchemaIsCurrent(t *testing.T) {
	t.Chdir("../..")
	published.Current(t, *update)
}

// TestSchemaHolds checks that the schema accepts a result that niclane wrote, and refuses other
// JSON.
func TestSchemaHolds(t *testing.T) {
	t.Chdir("../..")
	holds := published.Holds(t)
	validate := func(r *Result) error {
		var b bytes.Buffer
		if err := Write(&b, r); err != nil {
			t.Fatal(err)
		}
		return holds(b.Bytes())
	}
	full := fixture()
	full.Searches = []Search{{Variant: "idle",
		Result: &search.Result{Tests: []*search.Test{{Estimate: &stats.Estimate{}}}, Levels: []search.Level{{}}}}}
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
	// If NICLANE_RESULT names the result of a real run, the schema must accept it too.
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
	for name, text := range map[string]string{"key": `{"schema": "niclane.result/2", "titel": "x"}`,
		"type": `{"schema": "niclane.result/2", "windows": 7}`} {
		if holds([]byte(text)) == nil {
			t.Errorf("%s: it holds", name)
		}
	}
}

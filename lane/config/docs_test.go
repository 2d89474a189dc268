// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
)

const (
	schemaFile = "../../docs/lanes.schema.json"
	manFile    = "../../docs/lanes.yaml.5.md"
	begin      = "<!-- generated from package config; tools/go test ./lane/config -update -->\n"
	end        = "<!-- end of generated part -->\n"
)

// TestSchemaIsCurrent checks that the committed schema file is what Schema returns. -update
// writes the file.
func TestSchemaIsCurrent(t *testing.T) {
	if *update {
		must.Do(t, os.WriteFile(schemaFile, config.Schema(), 0o644))
	}
	got, err := os.ReadFile(schemaFile)
	must.Do(t, err)
	if diff := cmp.Diff(string(config.Schema()), string(got)); diff != "" {
		t.Errorf("run tools/go test ./lane/config -update (-want +got):\n%s", diff)
	}
}

// TestManualIsCurrent checks that lanes.yaml(5) lists the present keys. -update writes them.
func TestManualIsCurrent(t *testing.T) {
	text, err := os.ReadFile(manFile)
	must.Do(t, err)
	head, rest, ok := strings.Cut(string(text), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its markers", manFile)
	}
	want := "\n" + config.Reference() + "\n"
	if *update {
		must.Do(t, os.WriteFile(manFile, []byte(head+begin+want+end+tail), 0o644))
		return
	}
	if diff := cmp.Diff(want, old); diff != "" {
		t.Errorf("run tools/go test ./lane/config -update (-want +got):\n%s", diff)
	}
}

var example = regexp.MustCompile("(?s)```yaml\n(.*?)```\n(?:\n```text\n(.*?)```\n)?")

// TestManualExamples parses every example in lanes.yaml(5). If error messages follow an example,
// Parse must return the same messages. -update writes them.
func TestManualExamples(t *testing.T) {
	text, err := os.ReadFile(manFile)
	must.Do(t, err)
	good, bad := 0, 0
	for _, e := range example.FindAllStringSubmatchIndex(string(text), -1) {
		input := text[e[2]:e[3]]
		_, err := config.Parse("lanes.yaml", input)
		if e[4] < 0 {
			good++
			if err != nil {
				t.Errorf("%s\n%v", input, err)
			}
			if err := validate(t, input); err != nil {
				t.Errorf("%s\n%v", input, err)
			}
			continue
		}
		bad++
		if err == nil {
			t.Errorf("no error:\n%s", input)
			continue
		}
		got := err.Error() + "\n"
		if *update {
			updated := slices.Concat(text[:e[4]], []byte(got), text[e[5]:])
			must.Do(t, os.WriteFile(manFile, updated, 0o644))
			continue
		}
		if diff := cmp.Diff(string(text[e[4]:e[5]]), got); diff != "" {
			t.Errorf("run tools/go test ./lane/config -update (-want +got):\n%s", diff)
		}
	}
	if good < 2 || bad != 1 {
		t.Errorf("%d good and %d bad examples", good, bad)
	}
}

// compiled returns the compiled JSON Schema. It compiles it only once.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("lanes.schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("lanes.schema.json")
})

// validate checks a file against the JSON Schema, after oneSpelling.
func validate(t testing.TB, text []byte) error {
	t.Helper()
	s, err := compiled()
	must.Do(t, err)
	// This YAML reader would take a byte order mark as a part of the first key.
	asJSON, err := yaml.YAMLToJSON(bytes.TrimPrefix(text, []byte("\ufeff")))
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	v = oneSpelling(v)
	if top, ok := v.(map[string]any); ok {
		if lanes, ok := top["lanes"].(map[string]any); ok {
			for name, lane := range lanes {
				lanes[name] = oneSpelling(lane)
			}
		}
		top["globals"] = oneSpelling(top["globals"])
	}
	return s.Validate(v)
}

// oneSpelling returns a mapping with every key in the schema's spelling, also in its members.
func oneSpelling(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for k, v := range m {
		if k = strings.ReplaceAll(strings.ToLower(k), "_", "-"); k == "members" {
			if list, ok := v.([]any); ok {
				for i := range list {
					list[i] = oneSpelling(list[i])
				}
			}
		}
		if k == "force" {
			v = oneSpelling(v)
		}
		out[k] = v
	}
	return out
}

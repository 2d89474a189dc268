// SPDX-License-Identifier: Apache-2.0

package experiment_test

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

	"github.com/niclane/niclane/bench/experiment"
)

const (
	schemaFile = "../../docs/experiment.schema.json"
	manFile    = "../../docs/experiment.yaml.5.md"
	begin      = "<!-- generated from package bench/experiment; go generate ./bench/experiment -->\n"
	end        = "<!-- end of generated part -->\n"
)

// TestSchemaIsCurrent compares the schema file with Schema's result. With -update, it writes the
// file.
func TestSchemaIsCurrent(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaFile, experiment.Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := readFile(t, schemaFile)
	if diff := cmp.Diff(string(experiment.Schema()), string(got)); diff != "" {
		t.Errorf("run go generate ./bench/experiment (-want +got):\n%s", diff)
	}
}

// TestManualIsCurrent compares the list of keys in experiment.yaml(5) with Reference's result. With
// -update, it writes the list.
func TestManualIsCurrent(t *testing.T) {
	text := readFile(t, manFile)
	head, rest, ok := strings.Cut(string(text), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its markers", manFile)
	}
	want := "\n" + experiment.Reference() + "\n"
	if *update {
		if err := os.WriteFile(manFile, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, old); diff != "" {
		t.Errorf("run go generate ./bench/experiment (-want +got):\n%s", diff)
	}
}

var example = regexp.MustCompile("(?s)```yaml\n(.*?)```\n(?:\n```text\n(.*?)```\n)?")

// TestManualExamples parses every example of experiment.yaml(5). It compares the error messages
// printed after an example with those of Parse. With -update, it writes them.
func TestManualExamples(t *testing.T) {
	text := readFile(t, manFile)
	good, bad := 0, 0
	for _, e := range example.FindAllStringSubmatchIndex(string(text), -1) {
		input := text[e[2]:e[3]]
		_, err := experiment.Parse("experiment.yaml", input)
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
			if err := os.WriteFile(manFile, slices.Concat(text[:e[4]], []byte(got), text[e[5]:]), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(string(text[e[4]:e[5]]), got); diff != "" {
			t.Errorf("run go generate ./bench/experiment (-want +got):\n%s", diff)
		}
	}
	if good < 2 || bad != 1 {
		t.Errorf("%d good and %d bad examples", good, bad)
	}
}

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) { return compile(experiment.Schema()) })

// compile parses and compiles a JSON Schema.
func compile(text []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
}

// validate checks an experiment against its schema.
func validate(t testing.TB, text []byte) error {
	t.Helper()
	return validateBy(t, compiled, text)
}

// validateBy checks a file against a schema, after oneSpelling has rewritten the file's keys.
func validateBy(t testing.TB, schema func() (*jsonschema.Schema, error), text []byte) error {
	t.Helper()
	s, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	// This YAML reader treats a byte order mark as text.
	asJSON, err := yaml.YAMLToJSON(bytes.TrimPrefix(text, []byte("\ufeff")))
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	return s.Validate(oneSpelling("", v))
}

// oneSpelling rewrites keys in the spelling that the schema uses. It leaves the keys of a mapping
// alone if the file may choose them freely.
func oneSpelling(key string, v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range x {
			if key != "files" && key != "limits" && key != "environment" && key != "sysctls" {
				k = strings.ReplaceAll(strings.ToLower(k), "_", "-")
			}
			out[k] = oneSpelling(k, v)
		}
		return out
	case []any:
		for i := range x {
			x[i] = oneSpelling(key, x[i])
		}
	}
	return v
}

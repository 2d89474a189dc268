// SPDX-License-Identifier: Apache-2.0

package experiment_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/niclane/niclane/bench/experiment"
)

// TestHostsGolden reads testdata/hosts/*.txtar. It parses each hosts.yaml and compares the result
// with hosts.json, or the errors with errors.txt. Files are named as in TestGolden.
func TestHostsGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/hosts/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d goldens: %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			input := ar.Files[0]
			h, err := experiment.ParseHosts(input.Name, input.Data)
			if err == nil {
				again, err := experiment.ParseHosts(input.Name, hostsText(t, h))
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(h, again); d != "" {
					t.Errorf("(-first +again):\n%s", d)
				}
			}
			holdGolden(t, name, ar, 1, "hosts.json", h, err, validateHosts(t, input.Data))
		})
	}
}

var compiledHosts = sync.OnceValues(func() (*jsonschema.Schema, error) { return compile(experiment.HostsSchema()) })

// validateHosts checks a hosts file against its schema.
func validateHosts(t *testing.T, text []byte) error {
	t.Helper()
	return validateBy(t, compiledHosts, text)
}

const (
	hostsSchemaFile = "../../docs/hosts.schema.json"
	hostsManFile    = "../../docs/hosts.yaml.5.md"
	hostsExample    = experimentsDir + "/hosts.example.yaml"
)

// TestHostsDocumentsAreCurrent compares the schema and the list of keys with the code. With
// -update, it writes them.
func TestHostsDocumentsAreCurrent(t *testing.T) {
	text := readFile(t, hostsManFile)
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its markers", hostsManFile)
	}
	for path, want := range map[string]string{
		hostsSchemaFile: string(experiment.HostsSchema()),
		hostsManFile:    head + begin + "\n" + experiment.HostsReference() + end + tail,
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got := readFile(t, path)
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Errorf("run go generate ./bench/experiment (-want +got):\n%s", d)
		}
	}
	for _, e := range example.FindAllSubmatch(text, -1) {
		if _, err := experiment.ParseHosts("hosts.yaml", e[1]); err != nil {
			t.Errorf("%s\n%v", e[1], err)
		}
	}
}

// TestHostsExample checks that the example is a valid hosts file. Every experiment that has a lab
// must also parse with these hosts.
func TestHostsExample(t *testing.T) {
	for _, name := range experiments(t) {
		h := exampleHosts(t)
		f, err := experiment.ParseOn(filepath.Base(name), readFile(t, name), h)
		if err != nil {
			t.Error(err)
			continue
		}
		if x := f.Experiment; x.Lab != nil || x.Load.Generators < min(len(h.Clients), x.Load.Connections[0]) ||
			x.Load.Generators > x.Load.Connections[0] {
			t.Errorf("%s: lab %v, %d generators on %d clients", name, x.Lab, x.Load.Generators, len(h.Clients))
		}
	}
}

func FuzzParseHosts(f *testing.F) {
	files, err := filepath.Glob("testdata/hosts/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		ar, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ar.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := experiment.ParseHosts("hosts.yaml", text)
		if (h == nil) == (err == nil) {
			t.Errorf("%v and %v", h, err)
		}
		if err == nil && (len(h.Clients) == 0 || h.SUT.Device == "" || h.Authority == "") {
			t.Errorf("%+v", h)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package experiment_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/bench/experiment"
)

var update = flag.Bool("update", false, "rewrite goldens and generated documents")

// TestGolden reads testdata/*.txtar. It parses each experiment.yaml and compares the result with
// experiment.json, or the errors with errors.txt. The JSON Schema must reject the files named
// structure_*, too. It must accept those named meaning_*, whose errors only Parse can find, and all
// others.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d goldens: %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) { golden(t, name) })
	}
}

func golden(t *testing.T, name string) {
	ar, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	input, inputs := ar.Files[0], 1
	var on *experiment.Hosts
	if len(ar.Files) > 1 && ar.Files[1].Name == "hosts.yaml" {
		if on, err = experiment.ParseHosts(ar.Files[1].Name, ar.Files[1].Data); err != nil {
			t.Fatal(err)
		}
		inputs = 2
	}
	f, err := experiment.ParseOn(input.Name, input.Data, on)
	var value any
	if err == nil {
		value = f.Experiment
		sameAgain(t, f.Experiment)
	}
	holdGolden(t, name, ar, inputs, "experiment.json", value, err, validate(t, input.Data))
}

// holdGolden compares a result with the archive's file after its inputs (the first files of ar).
// This file is named kind and contains value, or is errors.txt and contains err. invalid is the
// schema's error.
func holdGolden(t *testing.T, name string, ar *txtar.Archive, inputs int, kind string, value any, err, invalid error) {
	t.Helper()
	result := txtar.File{Name: kind}
	var errs experiment.Errors
	if errors.As(err, &errs) {
		result = txtar.File{Name: "errors.txt", Data: []byte(errs.Error() + "\n")}
	} else {
		if result.Data, err = json.MarshalIndent(value, "", "  "); err != nil {
			t.Fatal(err)
		}
		result.Data = append(result.Data, '\n')
	}
	class, _, _ := strings.Cut(filepath.Base(name), "_")
	if wrong := class == "structure" || class == "meaning"; wrong != (errs != nil) {
		t.Errorf("class %s, errors %v", class, errs)
	}
	if (invalid != nil) != (class == "structure") {
		t.Errorf("class %s, the schema says %v", class, invalid)
	}
	if *update {
		if err := os.WriteFile(name, txtar.Format(&txtar.Archive{Comment: ar.Comment,
			Files: append(ar.Files[:inputs:inputs], result)}), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := txtar.File{}
	if len(ar.Files) > inputs {
		want = ar.Files[inputs]
	}
	if diff := cmp.Diff(want.Name+"\n"+string(want.Data), result.Name+"\n"+string(result.Data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// sameAgain writes an experiment as a file, parses the file, and compares the two experiments.
func sameAgain(t *testing.T, e *experiment.Experiment) {
	t.Helper()
	text := write(t, e)
	var on *experiment.Hosts
	if e.Hosts != nil {
		hosts := hostsText(t, e.Hosts)
		var err error
		if on, err = experiment.ParseHosts("hosts.yaml", hosts); err != nil {
			t.Fatalf("%v\n%s", err, hosts)
		}
	}
	again, err := experiment.ParseOn(e.Source, text, on)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	// write has used the numbers of the applied sizes, so again has no sizes.
	resized := *e
	resized.Sizes, resized.Sized = nil, nil
	if diff := cmp.Diff(&resized, again.Experiment); diff != "" {
		t.Fatalf("(-first +again):\n%s\n%s", diff, text)
	}
}

const experimentsDir = "../../experiments"

// experiments returns the paths of the experiment files that users get.
func experiments(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(experimentsDir + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(name string) bool { return name == hostsExample }) // a hosts file, not an experiment
	if len(files) < 4 {
		t.Fatalf("%d experiments", len(files))
	}
	return files
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestExperiments checks that every experiment parses, matches the schema, and ends within its time
// limit. After it is written and parsed again, it must be equal.
func TestExperiments(t *testing.T) {
	var names []string
	for _, name := range experiments(t) {
		base := filepath.Base(name)
		names = append(names, base)
		t.Run(base, func(t *testing.T) {
			text := readFile(t, name)
			f, err := experiment.ParseOn(base, text, labOr(text, exampleHosts(t)))
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, text); err != nil {
				t.Error(err)
			}
			sameAgain(t, f.Experiment)
			if _, most := experiment.Estimate(f.Experiment); most > f.Experiment.TimeLimit {
				t.Errorf("takes up to %d s, the time limit is %d s", most/1e9, f.Experiment.TimeLimit/1e9)
			}
		})
	}
	for _, paper := range []string{"first-lane", "memcached-connections", "memcached-shared-link", "web-cache-small",
		"web-cache-video", "memcached-client-lane", "aerospike-read", "redis-mixed", "live-linear", "vod",
		"kubernetes-memcached"} {
		if !slices.Contains(names, paper+".yaml") {
			t.Errorf("no experiment %s", paper)
		}
	}
}

// TestLocate checks that an error found after Parse gets the line of its path.
func TestLocate(t *testing.T) {
	text := readFile(t, experimentsDir+"/first-lane.yaml")
	f, err := experiment.Parse("first-lane.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"lab.queues":        "lab:", // not in the file: the line of the enclosing key
		"load.rates":        "  rates: 10000",
		"variants[1].noise": "  - name: no-lane",
		"goals[2]":          "  - {measure: noise, variant: lane, base: no-lane, at-least: 0.95}",
	} {
		file, line := f.Locate(path)
		if got := string(bytes.Split(text, []byte("\n"))[line-1]); file != "first-lane.yaml" || got != want {
			t.Errorf("Locate(%q) is line %d, %q, want %q", path, line, got, want)
		}
	}
	if got := f.Problem("server.kind", "memcached is not installed").Error(); !strings.HasPrefix(got,
		"first-lane.yaml:10: server.kind: ") {
		t.Errorf("got %q", got)
	}
}

// FuzzParse checks that Parse does not panic, returns the same result twice, and reports one-line
// errors with lines inside the file. The schema must accept what Parse accepts. An accepted file
// must mean the same after it is written again.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.txtar", experimentsDir + "/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range files {
			text := readFile(f, name)
			if ar := txtar.Parse(text); len(ar.Files) > 0 {
				text = ar.Files[0].Data
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := experiment.Parse("experiment.yaml", data)
		_, err2 := experiment.Parse("experiment.yaml", data)
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("two answers: %v; %v", err, err2)
		}
		if err == nil {
			if err := validate(t, data); err != nil {
				t.Errorf("the schema refuses it: %v", err)
			}
			if least, most := experiment.Estimate(got.Experiment); least < 0 || most < least {
				t.Errorf("takes %d to %d ns", least, most)
			}
			sameAgain(t, got.Experiment)
			return
		}
		var errs experiment.Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("got %T %v, want Errors", err, err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, e := range errs {
			if e.Line < 1 || e.Line > lines || e.Column < 1 || e.Message == "" ||
				strings.ContainsAny(e.Error(), "\n\x00") {
				t.Errorf("%d:%d of %d lines: %q", e.Line, e.Column, lines, e.Error())
			}
		}
	})
}

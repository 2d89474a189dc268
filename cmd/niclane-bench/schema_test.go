// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/simulate"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/schematest"
	"github.com/niclane/niclane/papers/refresh"
)

// documents are the JSON documents of report and refresh, by the name of their schema.
var documents = map[string]any{
	"bench-report":            &result.Summary{},
	"bench-report-comparison": &result.Comparison{},
	"bench-report-fan-out":    &[]result.FanOut{},
	"bench-report-servers":    &result.Servers{},
	"simulate":                &simulate.Result{},
	"bench-refresh":           &refresh.Result{},
	"bench-refresh-requests":  &[]refresh.Requests{},
	"bench-refresh-list":      &[]refresh.Server{},
}

func document(name string) *schematest.Record {
	return &schematest.Record{File: "docs/reference/schema/" + name + ".schema.json", Lists: true,
		Value: documents[name], Mapper: schematest.Text, Dirs: []string{"bench", "papers", "lane/device"},
		Title:       "niclane " + strings.ReplaceAll(name, "-", " ") + " --json",
		Description: "Times are in ns unless a name says otherwise."}
}

// TestSchemasAreCurrent compares the schemas with the types. With -update it writes them.
func TestSchemasAreCurrent(t *testing.T) {
	t.Chdir("../..")
	page, err := os.ReadFile("docs/reference/json.md")
	must.Do(t, err)
	for name := range documents {
		r := document(name)
		r.Current(t, flag.Lookup("update").Value.String() == "true")
		if !strings.Contains(string(page), "](schema/"+filepath.Base(r.File)+")") {
			t.Errorf("docs/reference/json.md has no link to %s", r.File)
		}
	}
}

// conforms checks what report or refresh printed with --json against its schema.
func conforms(t *testing.T, args []string, text []byte) error {
	t.Helper()
	name := "bench-" + args[0]
	switch {
	case args[0] == "simulate":
		name = args[0]
	case slices.Contains(args, "--fan-out"):
		name += "-fan-out"
	case slices.Contains(args, "--list"):
		name += "-list"
	case slices.Contains(args, "--requests"):
		name += "-requests"
	case slices.Contains(args, "--servers"):
		name += "-servers"
	case args[0] == "report" && len(args) > 2 && !strings.HasPrefix(args[2], "--"):
		name += "-comparison"
	}
	dir, err := os.Getwd()
	must.Do(t, err)
	must.Do(t, os.Chdir(sourceDir))
	holds := document(name).Holds(t)
	must.Do(t, os.Chdir(dir))
	return holds(text)
}

// sourceDir is the top of the source tree. Tests change the directory.
var sourceDir = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// TestRefreshConforms checks both documents of refresh against their schemas.
func TestRefreshConforms(t *testing.T) {
	for _, args := range [][]string{{"refresh", "--list"},
		{"refresh", "--rule", "units", "paper:1x6252N/vod/48", "paper:2x6780E/vod/48"}} {
		var out, errs bytes.Buffer
		if code := run(append(args, "--json"), nil, &out, &errs); code != 0 {
			t.Fatalf("%v: %s", args, errs.String())
		}
		if err := conforms(t, args, out.Bytes()); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	if conforms(t, []string{"refresh", "--list"}, []byte(`[{"names": 1}]`)) == nil {
		t.Error("another member conforms")
	}
}

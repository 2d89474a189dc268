// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
)

var update = flag.Bool("update", false, "rewrite goldens and generated documents")

// TestGolden parses the lanes.yaml of each archive testdata/*.txtar. It compares the result with
// intent.json or errors.txt in the same archive.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) { golden(t, name) })
	}
}

func golden(t *testing.T, name string) {
	ar, err := txtar.ParseFile(name)
	must.Do(t, err)
	if len(ar.Files) == 0 || ar.Files[0].Name != "lanes.yaml" {
		t.Fatal("want lanes.yaml first")
	}
	input := ar.Files[0]
	result := txtar.File{Name: "intent.json"}
	in, err := config.Parse(input.Name, input.Data)
	var errs config.Errors
	switch {
	case errors.As(err, &errs):
		result = txtar.File{Name: "errors.txt", Data: []byte(errs.Error() + "\n")}
	case err != nil:
		t.Fatalf("got %T, want config.Errors", err)
	default:
		if result.Data, err = json.MarshalIndent(in, "", "  "); err != nil {
			t.Fatal(err)
		}
		result.Data = append(result.Data, '\n')
	}
	want := txtar.File{}
	if len(ar.Files) > 1 {
		want = ar.Files[1]
	}
	if *update {
		ar.Files = []txtar.File{input, result}
		must.Do(t, os.WriteFile(name, txtar.Format(ar), 0o644))
		return
	}
	if diff := cmp.Diff(want.Name+"\n"+string(want.Data), result.Name+"\n"+string(result.Data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

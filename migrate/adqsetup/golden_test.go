// SPDX-License-Identifier: Apache-2.0

package adqsetup_test

import (
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
	"github.com/niclane/niclane/migrate/adqsetup"
)

var update = flag.Bool("update", false, "rewrite goldens")

// TestGolden converts the first file of each testdata/*.txtar, and compares the result with its
// lanes.yaml or errors.txt. A line "dev NAME" in the comment is the option --dev.
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
	if err != nil || len(ar.Files) == 0 {
		t.Fatalf("want an archive with a source: %v", err)
	}
	dev := ""
	for line := range strings.Lines(string(ar.Comment)) {
		if d, ok := strings.CutPrefix(line, "dev "); ok {
			dev = strings.TrimSpace(d)
		}
	}
	source := ar.Files[0]
	var result txtar.File
	res, err := adqsetup.Convert(source.Name, dev, source.Data)
	var errs config.Errors
	switch {
	case errors.As(err, &errs):
		result = txtar.File{Name: "errors.txt", Data: []byte(errs.Error() + "\n")}
	case err != nil:
		t.Fatalf("got %T, want config.Errors", err)
	default:
		result = txtar.File{Name: "lanes.yaml", Data: []byte(res.Lanes)}
	}
	if *update {
		ar.Files = []txtar.File{source, result}
		must.Do(t, os.WriteFile(name, txtar.Format(ar), 0o644))
		return
	}
	want := txtar.File{}
	if len(ar.Files) > 1 {
		want = ar.Files[1]
	}
	if diff := cmp.Diff(want.Name+"\n"+string(want.Data), result.Name+"\n"+string(result.Data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/config"
)

// FuzzParse holds Parse to: no panic, the same answer twice, and errors that
// can be found in the file, in order, each once and on one line.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
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
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := config.Parse("lanes.yaml", data)
		again, err2 := config.Parse("lanes.yaml", data)
		if diff := cmp.Diff(in, again, comparePrefix); diff != "" {
			t.Fatalf("two answers (-first +second):\n%s", diff)
		}
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("two answers: %v; %v", err, err2)
		}
		if err == nil {
			return
		}
		var errs config.Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("got %T %v, want config.Errors", err, err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, e := range errs {
			if e.Line < 1 || e.Line > lines || e.Column < 1 {
				t.Errorf("%d:%d of %d lines: %s", e.Line, e.Column, lines, e.Message)
			}
			if e.File != "lanes.yaml" || e.Message == "" || strings.ContainsAny(e.Error(), "\n\x00") {
				t.Errorf("bad message: %q", e.Error())
			}
		}
		if !slices.IsSortedFunc(errs, func(a, b config.Error) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		}) {
			t.Errorf("not in order:\n%v", errs)
		}
	})
}

var comparePrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/lane/config"
)

// TestSchema holds the schema to the parser. The goldens' names say what is
// wrong with them: structure_ is for the schema to see too, meaning_ is beyond
// it, syntax_ never gets that far, mixed_ is some of each; all others are good.
func TestSchema(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, name := range files {
		base := strings.TrimSuffix(filepath.Base(name), ".txtar")
		class, _, _ := strings.Cut(base, "_")
		t.Run(base, func(t *testing.T) {
			ar, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text := ar.Files[0].Data
			_, parseErr := config.Parse("lanes.yaml", text)
			switch class {
			case "syntax", "mixed":
				if parseErr == nil {
					t.Error("parsed")
				}
			case "structure":
				if err := validate(t, text); err == nil {
					t.Error("the schema takes it")
				}
				if parseErr == nil {
					t.Error("parsed")
				}
			case "meaning":
				if err := validate(t, text); err != nil {
					t.Errorf("the schema refuses it: %v", err)
				}
				if parseErr == nil {
					t.Error("parsed")
				}
			default:
				class = "good"
				if err := validate(t, text); err != nil {
					t.Errorf("the schema refuses it: %v", err)
				}
				if parseErr != nil {
					t.Error(parseErr)
				}
			}
		})
		seen[class]++
	}
	for _, class := range []string{"syntax", "structure", "meaning", "mixed", "good"} {
		if seen[class] == 0 {
			t.Errorf("no golden of class %s", class)
		}
	}
}

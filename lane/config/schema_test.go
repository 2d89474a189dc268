// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
)

// TestSchema checks each golden with the schema and with the parser. The golden's name says which
// of the two must refuse it: structure_ both, meaning_ only the parser. syntax_ is not YAML, and
// mixed_ has several kinds of errors. All other goldens are valid.
func TestSchema(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	must.Do(t, err)
	bad := []string{"syntax", "structure", "meaning", "mixed"}
	seen := map[string]int{}
	for _, name := range files {
		base := strings.TrimSuffix(filepath.Base(name), ".txtar")
		class, _, _ := strings.Cut(base, "_")
		t.Run(base, func(t *testing.T) {
			ar, err := txtar.ParseFile(name)
			must.Do(t, err)
			text := ar.Files[0].Data
			_, parseErr := config.Parse("lanes.yaml", text)
			if !slices.Contains(bad, class) {
				class = "good"
			}
			if (parseErr == nil) != (class == "good") {
				t.Errorf("parsed: %v", parseErr)
			}
			if class == "syntax" || class == "mixed" {
				return
			}
			if err := validate(t, text); (err == nil) != (class != "structure") {
				t.Errorf("the schema says: %v", err)
			}
		})
		seen[class]++
	}
	for _, class := range append(bad, "good") {
		if seen[class] == 0 {
			t.Errorf("no golden of class %s", class)
		}
	}
}

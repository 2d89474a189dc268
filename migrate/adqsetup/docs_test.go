// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"os"
	"strings"
	"testing"
)

// TestDocument checks that docs/migrating-from-adqsetup.md has a row for each key, in the table of
// the key's section.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/migrating-from-adqsetup.md")
	if err != nil {
		t.Fatal(err)
	}
	for part, names := range map[string][]string{"## Keys of [globals]\n": globalNames,
		"## Keys of an application\n": sectionNames} {
		_, rows, found := strings.Cut(string(text), part)
		if !found {
			t.Errorf("no %q", part)
		}
		rows, _, _ = strings.Cut(rows, "\n## ")
		keys := ""
		for line := range strings.Lines(rows) {
			if cells := strings.Split(line, "|"); len(cells) > 2 {
				keys += cells[1]
			}
		}
		for _, name := range names {
			if !strings.Contains(keys, "`"+name+"`") {
				t.Errorf("%q: no row for %s", part, name)
			}
		}
	}
}

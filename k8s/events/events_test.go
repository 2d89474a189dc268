// SPDX-License-Identifier: Apache-2.0

package events

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocument compares the table of docs/kubernetes-events.md with All, row by row.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/kubernetes-events.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	row := regexp.MustCompile("^\\| `(\\w+)` \\| (Normal|Warning) \\| (\\w+) \\| [^|]+ \\| [^|]+ \\|$")
	table, _, _ := strings.Cut(string(text), "\n## ")
	for line := range strings.Lines(table) {
		if m := row.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			got = append(got, strings.Join(m[1:], " "))
		} else if strings.HasPrefix(line, "| `") {
			t.Errorf("not a row of reason, type, object, meaning and advice: %s", line)
		}
	}
	for _, k := range All() {
		want = append(want, k.Reason+" "+k.Type+" "+k.Object)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSources checks that each reason of a condition is in All, and that no event is sent with a
// reason that is written in place.
func TestSources(t *testing.T) {
	constant, literal := regexp.MustCompile(`(?m)^\s*Reason\w+\s+= "(\w+)"`), regexp.MustCompile(`"([A-Z]\w+)"`)
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
			found++
			// niclane-controller is stopped when a policy gets the reason Uninstalled.
			if m[1] != "Uninstalled" && !slices.ContainsFunc(All(), func(k Kind) bool { return k.Reason == m[1] }) {
				t.Errorf("%s: %s is not in All", path, m[1])
			}
		}
		for line := range strings.Lines(string(text)) {
			if _, args, ok := strings.Cut(line, ".Event("); ok {
				for _, m := range literal.FindAllStringSubmatch(args, -1) {
					if m[1] != "Node" && m[1] != "Pod" {
						t.Errorf("%s: the reason %s is no constant of this package", path, m[1])
					}
				}
			}
		}
		return nil
	})
	if err != nil || found < 15 {
		t.Errorf("%d reasons found, %v", found, err)
	}
}

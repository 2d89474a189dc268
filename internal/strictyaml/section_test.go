// SPDX-License-Identifier: Apache-2.0

package strictyaml_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/strictyaml"
)

// A dish is the content of these tests' files.
type dish struct {
	Name    string
	Serves  int
	Courses []int
}

func dishKeys() []strictyaml.Key[dish] {
	return []strictyaml.Key[dish]{
		strictyaml.Of("name", strictyaml.Pattern("a word", `^[a-z]+$`, nil), "none", "What it is called.",
			func(d *dish, x string) { d.Name = x }),
		strictyaml.Of("serves", strictyaml.Integer(1, 12), "1", "How many it is for.",
			func(d *dish, x int) { d.Serves = x }),
		strictyaml.Of("at-course", strictyaml.Integers("a course", 1, 9, 4), "any", "When it is served.",
			func(d *dish, x []int) { d.Courses = x }),
		strictyaml.Refuse[dish]("salt", "not taken: add it at the table"),
	}
}

func readDish(text string) (d dish, bad []string, r *strictyaml.Reader) {
	r = strictyaml.NewReader("menu.yaml")
	if v, ok := r.Document([]byte(text), "name and serves"); ok {
		bad, _ = strictyaml.Section(v, dishKeys(), "a mapping of keys: name, ...", &d)
	}
	return d, bad, r
}

func TestSection(t *testing.T) {
	d, bad, r := readDish("name: soup\nServes: 4\nAT_COURSE: [1, 3-4]\n")
	if errs := r.Errors(); errs != nil || bad != nil {
		t.Fatalf("%v, bad %v", errs, bad)
	}
	if diff := cmp.Diff(dish{"soup", 4, []int{1, 3, 4}}, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := r.Positions().Of("at-course[1]"); got != (strictyaml.Position{Line: 3, Column: 16}) {
		t.Errorf("at-course[1] is at %v", got)
	}
	if !r.Given("serves") || r.Given("salt") || r.Line("serves") != 2 {
		t.Error("what is given is not what the file gives")
	}
}

// TestSectionErrors: one run reports all problems, and returns the keys that could not be read.
func TestSectionErrors(t *testing.T) {
	_, bad, r := readDish("name: [soup]\nserve: 4\nsalt: much\nat-course: 1\nat-course: 10\n")
	want := `menu.yaml:1: name: found a list, want a word
menu.yaml:2: serve: unknown key, did you mean serves?
menu.yaml:3: salt: not taken: add it at the table
menu.yaml:5: at-course: given a second time, first in line 4`
	if diff := cmp.Diff(want, r.Errors().Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"name", "serve"}, bad); diff != "" {
		t.Errorf("bad (-want +got):\n%s", diff)
	}
	r.Failf("salt", "once more")
	r.Failf("salt", "once more")
	if first, again := r.Errors(), r.Errors(); len(first) != 5 || cmp.Diff(first, again) != "" {
		t.Errorf("asked twice: %v\nand %v", first, again)
	}
	_, _, r = readDish("# nothing yet\n")
	if got := r.Errors().Error(); got != "menu.yaml:1: found an empty file, want name and serves" {
		t.Errorf("got %q", got)
	}
}

func TestReference(t *testing.T) {
	want := `## DISH

A dish has these.

**name**: a word (default: none)
: What it is called.

**serves**: an integer from 1 to 12 (default: 1)
: How many it is for.

**at-course**: a course from 1 to 9, a range (8-11), or a list of these (default: any)
: When it is served.

`
	if diff := cmp.Diff(want, strictyaml.Part("DISH", "A dish has these.", dishKeys())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	properties := strictyaml.Object(dishKeys(), "A dish.", "name")["properties"].(strictyaml.Schema)
	if _, taken := properties["salt"]; taken || len(properties) != 3 {
		t.Errorf("the schema has %v", properties)
	}
}

// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Change is one difference between runs A and B.
type Change struct {
	Path string `json:"path"`
	A    string `json:"a"` // "" if A does not have it
	B    string `json:"b"`
}

// changes returns the differences between two values of the same type, by their JSON names. If the
// members of a list have names, it compares members with the same name.
func changes(a, b any, skip ...string) []Change {
	x, y := map[string]string{}, map[string]string{}
	flatten("", a, x)
	flatten("", b, y)
	var out []Change
	paths := maps.Clone(x)
	maps.Copy(paths, y)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if x[path] != y[path] && !slices.ContainsFunc(skip,
			func(s string) bool { return path == s || strings.HasPrefix(path, s+".") }) {
			out = append(out, Change{path, x[path], y[path]})
		}
	}
	return out
}

func flatten(path string, v any, into map[string]string) {
	text, err := json.Marshal(v)
	var tree any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		panic(err) // cannot happen: our own types have no channels or functions
	}
	walk(path, tree, into)
}

func walk(path string, v any, into map[string]string) {
	join := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			walk(join(k), x, into)
		}
	case []any:
		plain := make([]string, 0, len(v))
		for i, x := range v {
			m, ok := x.(map[string]any)
			if !ok {
				plain = append(plain, fmt.Sprint(x))
				continue
			}
			name := fmt.Sprint(i)
			for _, k := range []string{"name", "what", "device"} {
				if s, ok := m[k].(string); ok {
					name = s
					break
				}
			}
			walk(join(name), m, into)
		}
		if len(plain) > 0 {
			into[path] = strings.Join(plain, " ")
		}
	case nil:
	default:
		into[path] = fmt.Sprint(v)
	}
}

// String renders "kernel: 6.1 → 6.12". For texts of several lines, it renders only the lines that
// differ.
func (c Change) String() string {
	if lines := c.Lines(); lines != nil {
		return fmt.Sprintf("%s: %s", c.Path, strings.Join(lines, "; "))
	}
	return fmt.Sprintf("%s: %s → %s", c.Path, cmp.Or(c.A, "-"), cmp.Or(c.B, "-"))
}

// Lines returns the lines that only one of two texts has: with a minus those of A, with a plus
// those of B. It returns nil if both texts have only one line.
func (c Change) Lines() (lines []string) {
	if !strings.Contains(c.A+c.B, "\n") {
		return nil
	}
	lines = []string{} // not nil, even if the texts differ only in the order of lines
	a, b := strings.Split(c.A, "\n"), strings.Split(c.B, "\n")
	only := func(mark string, these, others []string) {
		for _, l := range these {
			if l = strings.TrimSpace(l); l != "" &&
				!slices.ContainsFunc(others, func(o string) bool { return strings.TrimSpace(o) == l }) {
				lines = append(lines, mark+l)
			}
		}
	}
	only("- ", a, b)
	only("+ ", b, a)
	return lines
}

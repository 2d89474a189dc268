// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A Change sets one key of a file to another value.
type Change struct {
	// Path is a key's path as in messages: "load.rates", "noise[0].flows". If the file lacks the last
	// key, Set adds it. The keys before it must be in the file.
	Path string
	// Value is YAML on one line; "" removes the key.
	Value string
}

// Set applies changes to the text of a file and returns the new text. All other text, comments
// included, stays the same. Set does not check the new text; use Parse.
func Set(text string, changes ...Change) (string, error) {
	f, err := parser.ParseBytes([]byte(text), parser.ParseComments)
	if err != nil {
		return "", err
	}
	for _, c := range changes {
		if err := c.make(f); err != nil {
			return "", fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	return strings.TrimRight(f.String(), "\n") + "\n", nil
}

func (c Change) make(f *ast.File) error {
	around, key := "$", c.Path
	if i := strings.LastIndexByte(c.Path, '.'); i >= 0 {
		around, key = "$."+c.Path[:i], c.Path[i+1:]
	}
	if key == "" || strings.ContainsAny(c.Path, "*$") || strings.HasSuffix(key, "]") {
		return errors.New("want the path of one key: load.rates, noise[0].flows")
	}
	outer, err := yaml.PathString(around)
	if err != nil {
		return err
	}
	node, err := outer.FilterFile(f)
	if err != nil {
		return fmt.Errorf("the file has no %s", strings.TrimPrefix(around, "$."))
	}
	m, ok := node.(*ast.MappingNode)
	if !ok {
		return fmt.Errorf("%s is no mapping of keys", strings.TrimPrefix(around, "$."))
	}
	i := slices.IndexFunc(m.Values, func(v *ast.MappingValueNode) bool { return v.Key.String() == key })
	switch {
	case c.Value == "" && i >= 0:
		m.Values = slices.Delete(m.Values, i, i+1)
		return nil
	case c.Value == "":
		return nil
	case i < 0:
		return outer.MergeFromReader(f, strings.NewReader(key+": "+c.Value))
	}
	inner, err := yaml.PathString(around + "." + key)
	if err != nil {
		return err
	}
	return inner.ReplaceWithReader(f, strings.NewReader(c.Value))
}

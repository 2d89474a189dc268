// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// A Reader reads one document. It collects all problems, and the positions of keys and list
// items.
type Reader struct {
	file string
	errs Errors
	at   Positions
}

// NewReader returns a Reader of a file. The file's name serves only for messages.
func NewReader(file string) *Reader { return &Reader{file: file, at: Positions{}} }

// Errors returns all problems reported so far, ordered by position, or nil if there are none.
func (r *Reader) Errors() Errors { return r.errs.sorted() }

// Positions returns the positions of all keys and list items that were read.
func (r *Reader) Positions() Positions { return r.at }

// FailAt reports a problem at a position.
func (r *Reader) FailAt(at Position, path, format string, args ...any) {
	r.errs = append(r.errs, Error{
		File: r.file, Line: at.Line, Column: at.Column, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// Failf reports a problem of a path at its position in the file.
func (r *Reader) Failf(path, format string, args ...any) {
	r.FailAt(r.at.Of(path), path, format, args...)
}

// Given reports whether the file contains the path.
func (r *Reader) Given(path string) bool {
	_, ok := r.at[path]
	return ok
}

// Line returns the line of a path, or 0 if the file does not contain it.
func (r *Reader) Line(path string) int { return r.at[path].Line }

// Add records the position of a path that no Section reads. If the path was recorded before,
// twice is true and first its earlier position.
func (r *Reader) Add(path string, at Position) (first Position, twice bool) {
	if first, twice = r.at[path]; !twice {
		r.at[path] = at
	}
	return first, twice
}

// value wraps a node. It refuses YAML features that hide a value, such as aliases: people read
// niclane's files in an emergency, and an alias can stand for millions of nodes.
func (r *Reader) value(path string, node ast.Node, at Position) (Value, bool) {
	v := Value{r, path, node, at}
	if node == nil {
		return v, true
	}
	if at := positionOf(node.GetToken()); at.Line > 0 {
		v.at = at
	}
	switch n := node.(type) {
	case *ast.AnchorNode:
		v.Failf("found an anchor (&), want the value written out")
		return r.value(path, n.Value, v.at)
	case *ast.TagNode:
		v.Failf("found the tag %s, want the value without a tag", Quote(n.GetToken().Value))
		return r.value(path, n.Value, v.at)
	case *ast.AliasNode:
		v.Failf("found an alias (*), want the value written out")
		return v, false
	case *ast.MappingNode:
		// The token of a block mapping is its first colon: take the position of the first key.
		if len(n.Values) > 0 && !n.IsFlowStyle {
			v.at = positionOf(n.Values[0].Key.GetToken())
		}
	}
	return v, true
}

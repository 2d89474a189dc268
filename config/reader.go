// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/niclane/niclane/intent"
)

// A reader walks one document and collects what it asks for and every problem.
type reader struct {
	file string
	errs Errors
	at   map[string]position // of every key and list item, by path
	// unsure are the members, by path, of which a part could not be read: what
	// they match is not known.
	unsure  map[string]bool
	members int // seen so far
	in      intent.Intent
}

func (r *reader) failAt(at position, path, format string, args ...any) {
	r.errs = append(r.errs, Error{
		File: r.file, Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

// failf reports a problem of something that the file gives, by path.
func (r *reader) failf(path, format string, args ...any) {
	r.failAt((&File{at: r.at}).position(path), path, format, args...)
}

// given reports whether the file gives the path.
func (r *reader) given(path string) bool {
	_, ok := r.at[path]
	return ok
}

// A value is a node of the document and its path.
type value struct {
	r    *reader
	path string
	node ast.Node
	at   position
}

func (v value) failf(format string, args ...any) { v.r.failAt(v.at, v.path, format, args...) }

// wrong is the usual complaint.
func (v value) wrong(want string) { v.failf("found %s, want %s", v.found(), want) }

// value wraps a node. What YAML can hide a value behind is refused: niclane's
// files are read by people in an emergency, and an alias can stand for
// millions of nodes.
func (r *reader) value(path string, node ast.Node, at position) (value, bool) {
	v := value{r, path, node, at}
	if node == nil {
		return v, true
	}
	if at := positionOf(node.GetToken()); at.line > 0 {
		v.at = at
	}
	switch n := node.(type) {
	case *ast.AnchorNode:
		v.failf("found an anchor (&), want the value written out")
		return r.value(path, n.Value, v.at)
	case *ast.TagNode:
		v.failf("found the tag %s, want the value without a tag", quote(n.GetToken().Value))
		return r.value(path, n.Value, v.at)
	case *ast.AliasNode:
		v.failf("found an alias (*), want the value written out")
		return v, false
	case *ast.MappingNode:
		// The token of a block mapping is its first colon.
		if len(n.Values) > 0 && !n.IsFlowStyle {
			v.at = positionOf(n.Values[0].Key.GetToken())
		}
	}
	return v, true
}

// scalar returns the text of a scalar and whether it was written without
// quotes. Null is not a scalar here.
func (v value) scalar() (text string, plain, ok bool) {
	switch n := v.node.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		tk := n.GetToken()
		return tk.Value, tk.Type != token.SingleQuoteType && tk.Type != token.DoubleQuoteType, true
	case *ast.LiteralNode:
		return n.Value.Value, false, true
	}
	return "", false, false
}

// isText reports whether YAML has v as a string.
func (v value) isText() bool {
	switch v.node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return true
	}
	return false
}

func (v value) isNull() bool {
	_, null := v.node.(*ast.NullNode)
	return v.node == nil || null
}

// empty reports whether v is a list without items.
func (v value) empty() bool {
	seq, ok := v.node.(*ast.SequenceNode)
	return ok && len(seq.Values) == 0
}

// found describes what is there, for messages.
func (v value) found() string {
	if v.isNull() {
		return "nothing"
	}
	switch n := v.node.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		if v.empty() {
			return "an empty list"
		}
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return short(n.GetToken().Value)
	}
	if text, _, ok := v.scalar(); ok {
		return quote(text)
	}
	return "something else"
}

// short bounds what is repeated from a file in a message.
func short(s string) string {
	const most = 60
	if rs := []rune(s); len(rs) > most {
		return string(rs[:most]) + "..."
	}
	return s
}

func quote(s string) string { return fmt.Sprintf("%q", short(s)) }

// items returns the elements of a list; a single value is a list of one.
func (v value) items() []value {
	seq, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return []value{v}
	}
	var out []value
	for i, n := range seq.Values {
		path := fmt.Sprintf("%s[%d]", v.path, i)
		item, ok := v.r.value(path, n, v.at)
		v.r.at[path] = item.at
		if ok {
			out = append(out, item)
		}
	}
	return out
}

// entry is one key of a mapping as written.
type entry struct {
	name string
	at   position
	node ast.Node
}

// entries returns the keys of a mapping in the order of the file.
func (v value) entries() []entry {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		return nil
	}
	var out []entry
	for _, kv := range m.Values {
		at := positionOf(kv.Key.GetToken())
		k, ok := v.r.value(v.path, keyNode(kv.Key), at)
		if !ok {
			continue
		}
		name, _, ok := k.scalar()
		if _, merge := kv.Key.(*ast.MergeKeyNode); merge {
			v.r.failAt(at, v.path, "found a merge key (<<), want the keys written out")
			continue
		}
		if k.isNull() {
			name, ok = kv.Key.GetToken().Value, true
		}
		if !ok {
			v.r.failAt(at, v.path, "found %s as a key, want a word", k.found())
			continue
		}
		out = append(out, entry{name, at, kv.Value})
	}
	return out
}

func keyNode(k ast.MapKeyNode) ast.Node {
	if n, ok := k.(*ast.MappingKeyNode); ok {
		return n.Value
	}
	return k
}

// A target is what the keys of a section write to.
type target struct {
	group  *intent.Group
	lane   *intent.Lane
	member *intent.Member
}

// section reads a mapping by its table of keys and reports whether it was a
// mapping.
func (v value) section(keys []key, what string, t *target) bool {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		if text, plain, _ := v.scalar(); plain && strings.Contains(text, ":") {
			what += ", with a space after each colon"
		}
		v.wrong(what)
		return false
	}
	for _, e := range v.entries() {
		k := find(keys, e.name)
		if k == nil {
			v.r.unsure[v.path] = true
			hint := suggest(normal(e.name), names(keys))
			if val := (value{node: e.node}); m.IsFlowStyle && val.isNull() {
				hint = "; within {}, a list such as 80,443 needs brackets or quotes"
			}
			v.r.failAt(e.at, join(v.path, e.name), "unknown key%s", hint)
			continue
		}
		path := join(v.path, k.name)
		if first, twice := v.r.at[path]; twice {
			v.r.failAt(e.at, path, "given a second time, first in line %d", first.line)
			continue
		}
		v.r.at[path] = e.at
		if k.refused != "" {
			v.r.failAt(e.at, path, "%s", k.refused)
			continue
		}
		before := len(v.r.errs)
		if kv, ok := v.r.value(path, e.node, e.at); ok {
			k.read(kv, t)
		}
		if len(v.r.errs) > before && k.match {
			v.r.unsure[v.path] = true
		}
	}
	return true
}

var plainName = lazy(`^[0-9A-Za-z_-]{1,60}$`)

// join adds a name to a path. A name that could not be told from the path, or
// not be printed, is quoted.
func join(path, name string) string {
	if !plainName().MatchString(name) {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// normal is the spelling that keys are compared in: adqsetup's keys ignore
// case and take _ for -.
func normal(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

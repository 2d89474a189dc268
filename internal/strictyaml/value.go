// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A Value is a node of the document with its path.
type Value struct {
	r    *Reader
	path string
	node ast.Node
	at   Position
}

// Path returns the path of the value: "lanes.redis.ports[1]".
func (v Value) Path() string { return v.path }

// Failf reports a problem of the value.
func (v Value) Failf(format string, args ...any) { v.r.FailAt(v.at, v.path, format, args...) }

// Wrong reports the value found and the value wanted.
func (v Value) Wrong(want string) { v.Failf("found %s, want %s", v.Found(), want) }

// Scalar returns the text of a scalar and whether it was written without quotes. ok is false
// for null.
func (v Value) Scalar() (text string, plain, ok bool) {
	switch n := v.node.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		tk := n.GetToken()
		return tk.Value, tk.Type != token.SingleQuoteType && tk.Type != token.DoubleQuoteType, true
	case *ast.LiteralNode:
		return n.Value.Value, false, true
	}
	return "", false, false
}

// FailLine reports a problem in line n, from 1, of the value's text. If the text is under "|",
// the problem has the line of the file; otherwise the message contains n.
func (v Value) FailLine(n int, format string, args ...any) {
	if lit, ok := v.node.(*ast.LiteralNode); ok && lit.Start != nil && strings.HasPrefix(lit.Start.Value, "|") {
		v.r.FailAt(Position{positionOf(lit.Start).Line + n, 1}, v.path, format, args...)
		return
	}
	if n > 1 {
		format = "line " + strconv.Itoa(n) + ": " + format
	}
	v.Failf(format, args...)
}

// IsText reports whether v is a string for YAML.
func (v Value) IsText() bool {
	switch v.node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return true
	}
	return false
}

// IsNull reports whether v is null or empty.
func (v Value) IsNull() bool {
	_, null := v.node.(*ast.NullNode)
	return v.node == nil || null
}

// IsMapping reports whether v is a mapping with keys.
func (v Value) IsMapping() bool {
	_, ok := v.node.(*ast.MappingNode)
	return ok
}

// Len returns the number of items of a list; list is false if v is not a list.
func (v Value) Len() (n int, list bool) {
	seq, list := v.node.(*ast.SequenceNode)
	if list {
		n = len(seq.Values)
	}
	return n, list
}

// Empty reports whether v is a list without items.
func (v Value) Empty() bool {
	n, list := v.Len()
	return list && n == 0
}

// Found describes the value, for messages.
func (v Value) Found() string {
	if v.IsNull() {
		return "nothing"
	}
	switch n := v.node.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		if v.Empty() {
			return "an empty list"
		}
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return short(n.GetToken().Value)
	}
	if text, _, ok := v.Scalar(); ok {
		return Quote(text)
	}
	return "something else"
}

// short cuts a text of a file to 60 characters, for a message.
func short(s string) string {
	const most = 60
	if rs := []rune(s); len(rs) > most {
		return string(rs[:most]) + "..."
	}
	return s
}

// Quote returns a text of a file for messages: bounded and on one line.
func Quote(s string) string { return fmt.Sprintf("%q", short(s)) }

// Items returns the items of a list. A single value is a list of one item.
func (v Value) Items() []Value {
	seq, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return []Value{v}
	}
	var out []Value
	for i, n := range seq.Values {
		path := Index(v.path, i)
		item, ok := v.r.value(path, n, v.at)
		v.r.at[path] = item.at
		if ok {
			out = append(out, item)
		}
	}
	return out
}

// An Entry is one key of a mapping, as written.
type Entry struct {
	Name string
	At   Position
	r    *Reader
	node ast.Node
}

// Value returns the value of the key. path becomes the path of the value.
func (e Entry) Value(path string) (Value, bool) { return e.r.value(path, e.node, e.At) }

// Entries returns the keys of a mapping in the order of the file.
func (v Value) Entries() []Entry {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		return nil
	}
	var out []Entry
	for _, kv := range m.Values {
		at := positionOf(kv.Key.GetToken())
		k, ok := v.r.value(v.path, keyNode(kv.Key), at)
		if !ok {
			continue
		}
		name, _, ok := k.Scalar()
		if _, merge := kv.Key.(*ast.MergeKeyNode); merge {
			v.r.FailAt(at, v.path, "found a merge key (<<), want the keys written out")
			continue
		}
		if k.IsNull() {
			name, ok = kv.Key.GetToken().Value, true
		}
		if !ok {
			v.r.FailAt(at, v.path, "found %s as a key, want a word", k.Found())
			continue
		}
		out = append(out, Entry{name, at, v.r, kv.Value})
	}
	return out
}

func keyNode(k ast.MapKeyNode) ast.Node {
	if n, ok := k.(*ast.MappingKeyNode); ok {
		return n.Value
	}
	return k
}

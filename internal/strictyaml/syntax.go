// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a file. They are far above the needs of a host. They keep the parser's time below
// one second: the time grows with the square of the depth, and with the square of the number of
// keys in one mapping.
const (
	maxBytes  = 512 << 10
	maxDepth  = 16   // of [ and {
	maxColumn = 128  // of a key or list item: bounds the depth of blocks
	maxKeys   = 2048 // of one mapping
)

// hints are additions to the parser's messages: the usual cause.
var hints = map[string]string{
	"non-map value is specified":                   `, want "key: value"`,
	"mapping value is not allowed in this context": `; check the indentation, and quote a value that has ": " in it`,
	"value is not allowed in this context":         "; check the indentation and the quotes",
	"could not find flow map content":              `; want "key: value" between { and }`,
	"',' or ']' must be specified":                 ": a list is not closed",
	"',' or '}' must be specified":                 ": a mapping is not closed",
	"found an invalid key for this map":            ", want a word",
}

// Document parses a text and returns its single document. want names the expected keys, for an
// empty file.
func (r *Reader) Document(data []byte, want string) (Value, bool) {
	node, ok := r.parse(data, want)
	if !ok {
		return Value{}, false
	}
	return r.value("", node, Position{1, 1})
}

// parse turns the text into the node of its single document.
func (r *Reader) parse(data []byte, want string) (ast.Node, bool) {
	text, ok := r.text(data)
	if !ok {
		return nil, false
	}
	tokens := lexer.Tokenize(text)
	if !r.bounded(tokens) {
		return nil, false
	}
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var ye yaml.Error
		if errors.As(err, &ye) {
			msg := ye.GetMessage()
			r.FailAt(positionOf(ye.GetToken()), "", "not YAML: %s%s", msg, hints[msg])
		} else {
			r.FailAt(Position{1, 1}, "", "not YAML: %v", err)
		}
		return nil, false
	}
	return r.document(f, want)
}

// text checks the file's size and characters before parsing. It returns the text with \n line
// ends and without a byte order mark.
func (r *Reader) text(data []byte) (string, bool) {
	if len(data) > maxBytes {
		r.FailAt(Position{1, 1}, "", "found a file of %d bytes, want at most %d", len(data), maxBytes)
		return "", false
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	before := len(r.errs)
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if msg, column := badLine(line); msg != "" {
			r.FailAt(Position{n, column}, "", "%s", msg)
		}
	}
	return text, len(r.errs) == before
}

// badLine returns a message about the first wrong character in a line, and its column.
func badLine(line string) (msg string, column int) {
	indent, column := true, 0
	for i, c := range line {
		column++
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(line[i:], "\ufffd"):
			return fmt.Sprintf("found the byte 0x%02x, want UTF-8 text", line[i]), column
		case c == '\t' && indent && strings.TrimSpace(line) != "":
			return "found a tab in the indentation, want spaces", column
		case c != '\t' && unicode.IsControl(c), c == '\u2028', c == '\u2029', c == '\ufeff':
			return fmt.Sprintf("found the character %U, want printable text", c), column
		}
		indent = indent && (c == ' ' || c == '\t')
	}
	return "", 0
}

// bounded refuses text with too deep nesting, too large mappings or several documents. It runs
// before the parser, because the parser is recursive.
func (r *Reader) bounded(tokens token.Tokens) bool {
	var block [maxColumn + 1]int // keys of the open block mapping, by column
	var flow [maxDepth + 1]int   // keys of the open {}, by depth; 0 is outside
	depth, content := 0, false
	for i, tk := range tokens {
		at := positionOf(tk)
		switch tk.Type {
		case token.CommentType:
			continue
		case token.DirectiveType:
			r.FailAt(at, "", "found a directive (%%), want none; a value that starts with %% needs quotes")
			return false
		case token.DocumentHeaderType:
			if content {
				r.FailAt(at, "", "found a second document, want one document per file")
				return false
			}
		case token.SequenceStartType, token.MappingStartType:
			if depth++; depth > maxDepth {
				r.FailAt(at, "", "found more than %d brackets within each other", maxDepth)
				return false
			}
			flow[depth] = 0
		case token.SequenceEndType, token.MappingEndType:
			depth = max(depth-1, 0)
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			if tk.Type == token.MappingValueType && i > 0 {
				at.Column = positionOf(tokens[i-1]).Column // the column of the key, not of the colon
			}
			keys := &flow[depth]
			if depth == 0 {
				if at.Column > maxColumn {
					r.FailAt(at, "", "found column %d, want indentation of at most %d", at.Column, maxColumn)
					return false
				}
				clear(block[at.Column+1:])
				keys = &block[at.Column]
			}
			if tk.Type == token.SequenceEntryType {
				break
			}
			if *keys++; *keys > maxKeys {
				r.FailAt(at, "", "found more than %d keys in one mapping", maxKeys)
				return false
			}
		}
		content = true
	}
	return true
}

// document returns the body of the only document.
func (r *Reader) document(f *ast.File, want string) (ast.Node, bool) {
	var body ast.Node
	before := len(r.errs)
	for _, d := range f.Docs {
		if _, comment := d.Body.(*ast.CommentGroupNode); d.Body == nil || comment {
			continue
		}
		if body != nil {
			r.FailAt(positionOf(d.Body.GetToken()), "", "found a second document, want one document per file")
			break
		}
		body = d.Body
	}
	if body == nil && len(r.errs) == before {
		r.FailAt(Position{1, 1}, "", "found an empty file, want %s", want)
	}
	return body, body != nil
}

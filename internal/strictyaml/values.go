// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A Map is a document, or a part of one, that does not come from text. Its values are string,
// int, bool, []string, Map and []Map.
type Map []Pair

// A Pair is a key of a Map with its value.
type Pair struct {
	Key   string
	Value any
}

// Set adds a key.
func (m *Map) Set(key string, value any) { *m = append(*m, Pair{key, value}) }

// Values returns a document that does not come from text. Its problems have paths but no lines.
func (r *Reader) Values(m Map) (Value, bool) { return r.value("", node(m), Position{}) }

// node returns the node that the parser would make of a value. This takes a tenth of the time
// of writing the text and parsing it.
func node(value any) ast.Node {
	switch v := value.(type) {
	case string:
		return ast.String(&token.Token{Type: token.DoubleQuoteType, Value: v, Position: &token.Position{}})
	case int:
		return ast.Integer(&token.Token{Type: token.IntegerType, Value: strconv.Itoa(v), Position: &token.Position{}})
	case bool:
		return ast.Bool(&token.Token{Type: token.BoolType, Value: strconv.FormatBool(v), Position: &token.Position{}})
	case []string:
		return sequence(v)
	case []Map:
		return sequence(v)
	case Map:
		n := ast.Mapping(&token.Token{Type: token.MappingValueType, Position: &token.Position{}}, false)
		for _, p := range v {
			key := ast.String(&token.Token{Type: token.StringType, Value: p.Key, Position: &token.Position{}})
			n.Values = append(n.Values, ast.MappingValue(n.Start, key, node(p.Value)))
		}
		return n
	}
	panic(fmt.Sprintf("strictyaml: a value of type %T", value)) // a programming error
}

func sequence[T any](items []T) ast.Node {
	n := ast.Sequence(&token.Token{Type: token.SequenceStartType, Position: &token.Position{}}, true)
	for _, item := range items {
		n.Values = append(n.Values, node(item))
	}
	return n
}

// Text returns the mapping as YAML in a readable form.
func (m Map) Text() []byte {
	var b bytes.Buffer
	b.Grow(1 << 10)
	m.write(&b, "")
	return b.Bytes()
}

func (m Map) write(b *bytes.Buffer, indent string) {
	for i, p := range m {
		if i > 0 || !strings.HasSuffix(indent, "- ") {
			b.WriteString(strings.ReplaceAll(indent, "-", " "))
		}
		word(b, p.Key)
		b.WriteByte(':')
		switch v := p.Value.(type) {
		case Map:
			b.WriteByte('\n')
			v.write(b, strings.ReplaceAll(indent, "-", " ")+"  ")
		case []Map:
			if len(v) == 0 {
				b.WriteString(" []\n")
				continue
			}
			b.WriteByte('\n')
			for _, item := range v {
				in := strings.ReplaceAll(indent, "-", " ") + "  - "
				b.WriteString(in)
				item.write(b, in)
			}
		case []string:
			b.WriteString(" [")
			for i, s := range v {
				if i > 0 {
					b.WriteString(", ")
				}
				word(b, s)
			}
			b.WriteString("]\n")
		case string:
			b.WriteByte(' ')
			word(b, v)
			b.WriteByte('\n')
		default:
			fmt.Fprintf(b, " %v\n", v)
		}
	}
}

// reserved are words that some YAML readers do not take for text.
var reserved = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

// word writes a text, in quotes unless it is a plain word.
func word(b *bytes.Buffer, s string) {
	plain := s != "" && s[0] >= 'a' && s[0] <= 'z' && !slices.Contains(reserved, s)
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= 'a' && s[i] <= 'z' || s[i] >= '0' && s[i] <= '9' || s[i] == '-'
	}
	if plain {
		b.WriteString(s)
	} else {
		b.WriteString(strconv.Quote(s))
	}
}

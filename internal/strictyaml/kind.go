// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A Kind is a type of value: its name in messages and in the reference, its JSON Schema, and
// its reader. Read reports problems itself and then returns false.
type Kind[T any] struct {
	Want   string
	Schema Schema
	Read   func(v Value) (T, bool)
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})$`)

// IsDecimal reports whether a text is an integer in the form that files use. YAML's other forms
// (0x10, 010, 1_000) are refused because they mislead.
func IsDecimal(text string) bool { return decimal.MatchString(text) }

// Parse reads a text as if a file contained it without quotes. Commands use it for their
// options. The error has the message that a file would get, without the position.
func (k Kind[T]) Parse(text string) (T, error) {
	r := NewReader("")
	t, ok := k.Read(Value{r: r, node: ast.String(token.New(text, text, &token.Position{}))})
	if errs := r.Errors(); !ok && len(errs) > 0 {
		return t, errors.New(errs[0].Message)
	}
	return t, nil
}

// Mapped returns k with another type of value: f converts the value that k reads.
func Mapped[A, B any](k Kind[A], f func(A) B) Kind[B] {
	return Kind[B]{Want: k.Want, Schema: k.Schema, Read: func(v Value) (B, bool) {
		a, ok := k.Read(v)
		return f(a), ok
	}}
}

// Named returns k with a named string type as the type of its value.
func Named[T ~string](k Kind[string]) Kind[T] {
	return Mapped(k, func(s string) T { return T(s) })
}

// Integer returns the kind of an integer from least to most.
func Integer(least, most int) Kind[int] {
	return integer(fmt.Sprintf("an integer from %d to %d", least, most), least, most)
}

func integer(want string, least, most int) Kind[int] {
	k := Kind[int]{
		Want:   want,
		Schema: Schema{"type": "integer", "minimum": least, "maximum": most},
	}
	k.Read = func(v Value) (int, bool) {
		text, plain, _ := v.Scalar()
		if n, err := strconv.Atoi(text); plain && IsDecimal(text) && err == nil && n >= least && n <= most {
			return n, true
		}
		v.Wrong(k.Want)
		return 0, false
	}
	return k
}

// Boolean returns the kind of a truth value. It accepts the words that adqsetup accepts, except
// 1 and 0.
func Boolean() Kind[bool] {
	k := Kind[bool]{
		Want: "on or off (or true, false, yes, no)",
		Schema: Schema{"anyOf": []any{
			Schema{"type": "boolean"},
			Schema{"type": "string", "pattern": anyCase("on", "off", "yes", "no", "true", "false")},
		}},
	}
	k.Read = func(v Value) (bool, bool) {
		text, _, _ := v.Scalar()
		switch strings.ToLower(text) {
		case "on", "true", "yes":
			return true, true
		case "off", "false", "no":
			return false, true
		}
		v.Wrong(k.Want)
		return false, false
	}
	return k
}

// Word returns the kind of a word that must be one of the given words.
func Word(words ...string) Kind[string] {
	k := Kind[string]{
		Want:   OneOf(words),
		Schema: Schema{"enum": words},
	}
	k.Read = func(v Value) (string, bool) {
		if text, _, ok := v.Scalar(); ok && slices.Contains(words, text) {
			return text, true
		}
		v.Wrong(k.Want)
		return "", false
	}
	return k
}

// OneOf lists words for a message.
func OneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Pattern returns the kind of a text that matches the regular expression expr. If why is not
// nil, it checks a text that matches: it returns the problem that it finds, or "".
func Pattern(want, expr string, why func(string) string) Kind[string] {
	re := regexp.MustCompile(expr)
	k := Kind[string]{Want: want, Schema: Schema{"type": "string", "pattern": expr}}
	k.Read = func(v Value) (string, bool) {
		text, _, ok := v.Scalar()
		if !ok || !re.MatchString(text) {
			v.Wrong(k.Want)
			return "", false
		}
		if !v.IsText() {
			v.Failf("found %s, which YAML takes for a number or a truth value; want quotes around it", v.Found())
			return "", false
		}
		if why != nil {
			if msg := why(text); msg != "" {
				v.Failf("found %s, %s", Quote(text), msg)
				return "", false
			}
		}
		return text, true
	}
	return k
}

// anyCase returns a regular expression for words in upper or lower case. JSON Schema has no flag
// to ignore the case.
func anyCase(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		var b strings.Builder
		for _, c := range w {
			if up := strings.ToUpper(string(c)); up != string(c) {
				b.WriteString("[" + up + string(c) + "]")
			} else {
				b.WriteRune(c)
			}
		}
		out[i] = b.String()
	}
	return "^(" + strings.Join(out, "|") + ")$"
}

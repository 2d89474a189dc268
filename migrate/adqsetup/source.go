// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/niclane/niclane/internal/strictyaml"
)

// maxBytes is the largest size of a file. 15 applications need far less, and the lanes file of a
// file of this size is not too large.
const maxBytes = 64 << 10

const globals = "globals"

// A section is [globals] or the section of an application.
type section struct {
	name  string
	line  int
	words bool // line numbers are numbers of words
	items []item
}

// at formats a position in the section.
func (s *section) at(line int) string {
	if s.words {
		return fmt.Sprintf("word %d", line)
	}
	return fmt.Sprintf("line %d", line)
}

// An item is a key of the file with its value.
type item struct {
	name string // spelling from the function normal
	text string // "": default; the text auto in the file becomes ""
	line int
}

// get returns the value of a key, and whether the key is set. A key with an empty value, or with
// auto, counts as not set, as in adqsetup.
func (s *section) get(name string) (item, bool) {
	for _, it := range s.items {
		if it.name == name && it.text != "" {
			return it, true
		}
	}
	return item{line: s.line}, false
}

// set sets a key to the value of a command-line option.
func (s *section) set(o Option) {
	it := item{normal(o.Key), value(o.Value), s.line}
	for i, other := range s.items {
		if other.name == it.name {
			s.items[i].text = it.text
			return
		}
	}
	s.items = append(s.items, it)
}

// read parses a file as JSON if it begins with a brace, which INI cannot, else as INI.
func read(r *strictyaml.Reader, data []byte, onlyJSON bool) []section {
	if len(data) > maxBytes {
		fail(r, 1, "", "found a file of %d bytes, want at most %d", len(data), maxBytes)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !printable(r, string(data)) {
		return nil
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return readJSON(r, data)
	}
	if onlyJSON {
		fail(r, 1, "", "found no { at the beginning, want JSON, as --json says")
		return nil
	}
	return readINI(r, string(data))
}

// printable reports whether a text has only characters that messages and comments can show. If not,
// it reports the error.
func printable(r *strictyaml.Reader, text string) bool {
	ok := true
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if !utf8.ValidString(line) {
			fail(r, n, "", "found bytes that are not UTF-8, want UTF-8 text")
			ok = false
			continue
		}
		for _, c := range line {
			if c != '\t' && (unicode.IsControl(c) || c == '\u2028' || c == '\u2029' || c == '\ufeff') {
				fail(r, n, "", "found the character %U, want printable text", c)
				ok = false
				break
			}
		}
	}
	return ok
}

// add adds a key. A key that the section has already is an error. adqsetup's JSON parser would use
// the last value, and its INI parser would refuse the file.
func (s *section) add(r *strictyaml.Reader, name, text string, line int) {
	it := item{normal(name), value(text), line}
	for _, other := range s.items {
		if other.name == it.name {
			fail(r, line, strictyaml.Join(s.name, it.name), "given a second time, first in %s", s.at(other.line))
			return
		}
	}
	s.items = append(s.items, it)
}

// again reports whether a section of this name exists already. If so, it reports the error.
func again(r *strictyaml.Reader, all []section, name string, line int) bool {
	for _, s := range all {
		if s.name == name {
			fail(r, line, strictyaml.Join("", name), "a second section of this name, the first in %s", s.at(s.line))
			return true
		}
	}
	return false
}

// normal returns a key in one spelling, because adqsetup ignores case and accepts _ for -.
func normal(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
}

func value(text string) string {
	if text = strings.TrimSpace(text); strings.EqualFold(text, "auto") {
		return ""
	}
	return text
}

func fail(r *strictyaml.Reader, line int, path, format string, args ...any) {
	r.FailAt(strictyaml.Position{Line: line, Column: 1}, path, "%s", fmt.Sprintf(format, args...))
}

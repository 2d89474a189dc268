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

// maxBytes is the size limit of a file: far above the need of 15 applications, and low enough
// that the lanes file is not too large.
const maxBytes = 64 << 10

const globals = "globals"

// A section is globals or an application.
type section struct {
	name  string
	line  int
	words bool // lines are word numbers
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
	name string // normalised by normal
	text string // "": the default, like auto
	line int
}

// get returns the value of a key, and whether it is set. adqsetup treats an empty value, and
// auto, as the default of any key.
func (s *section) get(name string) (item, bool) {
	for _, it := range s.items {
		if it.name == name && it.text != "" {
			return it, true
		}
	}
	return item{line: s.line}, false
}

// set replaces the section's value by an option of the command line.
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

// read parses a file. JSON begins with a brace, INI cannot.
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

// printable refuses text that would make a message or a comment unreadable.
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

// add adds a key. A second one is an error: adqsetup's JSON would use the last one, and its INI
// parser would refuse the file.
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

// again reports a second section with the same name as an error.
func again(r *strictyaml.Reader, all []section, name string, line int) bool {
	for _, s := range all {
		if s.name == name {
			fail(r, line, strictyaml.Join("", name), "a second section of this name, the first in %s", s.at(s.line))
			return true
		}
	}
	return false
}

// normal returns the normalised spelling of a key: adqsetup ignores case and accepts _ for -.
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

// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// readINI reads the dialect of Python's configparser
// (docs.python.org/3/library/configparser.html): = or : between key and value, comments on
// their own lines, and values that continue on lines indented deeper than their key. No Go
// library reads this dialect and keeps the line numbers. readINI refuses interpolation and the
// section DEFAULT, because they change other parts of the file.
func readINI(r *strictyaml.Reader, text string) []section {
	var all []section
	var here *section // nil: before the first section, or in a refused one
	skip := false     // the section is refused: ignore its keys
	open := false     // the last key's value can continue
	indent, n := 0, 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		body := strings.TrimSpace(line)
		if body == "" || body[0] == '#' || body[0] == ';' {
			continue
		}
		depth := len(line) - len(strings.TrimLeft(line, " \t"))
		if open && depth > indent {
			if !skip && len(here.items) > 0 {
				last := &here.items[len(here.items)-1]
				last.text = value(last.text + "\n" + plain(r, strictyaml.Join(here.name, last.name), n, body))
			}
			continue
		}
		indent = depth
		if body[0] == '[' {
			name, ok := header(r, body, n)
			skip, open = !ok || again(r, all, name, n), false
			if !skip {
				all = append(all, section{name: name, line: n})
				here = &all[len(all)-1]
			}
			continue
		}
		if skip {
			open = true
			continue
		}
		if here == nil {
			fail(r, n, "", "found %s before the first section, "+
				"want [globals] or the name of an application in brackets", strictyaml.Quote(body))
			return nil
		}
		at := strings.IndexAny(body, "=:")
		if at <= 0 {
			fail(r, n, strictyaml.Join("", here.name), "found %s, want key = value", strictyaml.Quote(body))
			open = false
			continue
		}
		before := len(here.items)
		here.add(r, body[:at], plain(r, strictyaml.Join(here.name, normal(body[:at])), n, body[at+1:]), n)
		open = len(here.items) > before
	}
	return all
}

// header returns the name in a line like [memcached].
func header(r *strictyaml.Reader, body string, n int) (name string, ok bool) {
	name, rest, closed := strings.Cut(body[1:], "]")
	name, rest = strings.TrimSpace(name), strings.TrimSpace(rest)
	switch {
	case !closed:
		fail(r, n, "", "found %s, want a ] after the name of the section", strictyaml.Quote(body))
	case name == "":
		fail(r, n, "", "found a section without a name, want [globals] or the name of an application")
	case rest != "" && rest[0] != '#' && rest[0] != ';':
		fail(r, n, strictyaml.Join("", name), "found %s after the section's name, want it on a line of its own",
			strictyaml.Quote(rest))
	case name == "DEFAULT":
		fail(r, n, "", "adqsetup copies the keys of section DEFAULT to all others; write them in each section")
	case name != globals && strings.EqualFold(name, globals):
		fail(r, n, strictyaml.Join("", name), "adqsetup takes this for an application, did you mean [globals]?")
	default:
		return name, true
	}
	return name, false
}

// plain returns a value without the comment after it. Python 2 cuts at a semicolon, Python 3
// keeps it as part of the value.
func plain(r *strictyaml.Reader, path string, n int, text string) string {
	for _, mark := range []string{" ;", "\t;"} {
		text, _, _ = strings.Cut(text, mark)
	}
	if strings.Contains(text, "#") {
		fail(r, n, path, "found # after the value, want comments on lines of their own")
		text, _, _ = strings.Cut(text, "#")
	}
	if strings.Contains(text, "%") {
		fail(r, n, path, "found %%, which adqsetup replaces by the value of another key; write that value out")
	}
	return text
}

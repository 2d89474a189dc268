// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// readINI reads the INI dialect of Python's configparser
// (docs.python.org/3/library/configparser.html). A key and its value are separated by = or :.
// Comments have lines of their own. A value continues on lines that are indented deeper than its
// key. No Go library reads this dialect and keeps line numbers. readINI refuses interpolation and
// the section DEFAULT, because these make other parts of the file mean something else.
func readINI(r *strictyaml.Reader, text string) []section {
	var all []section
	var here *section // nil: before the first section, or in a refused section
	skip := false     // true: this section was refused, so ignore its keys
	open := false     // true: the next line may continue the last key's value
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

// header returns the section's name in a line like [memcached].
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

// plain returns a value without a comment that follows it. After a semicolon, Python 2 ignores the
// rest, and Python 3 keeps it as part of the value.
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

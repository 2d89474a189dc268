// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/config"
)

// A Note is a difference between niclane and adqsetup. The lanes file contains it as a comment.
type Note struct {
	Line    int    `json:"line,omitempty"` // line of the source, from 1; 0 if the source lacks the key
	Path    string `json:"path"`           // path in the source: "globals.priority"
	Message string `json:"message"`
}

// A Result is the conversion of an adqsetup file.
type Result struct {
	Lanes string `json:"lanes"` // a lanes file that package config accepts
	Notes []Note `json:"notes"`

	name    string
	from    []int // source line of each line of Lanes
	options []Option
}

// An Input is adqsetup's input: a file, or the words of its command create, and the options
// before them.
type Input struct {
	Name string // name of the file, for messages only
	Text []byte
	JSON bool // true: the file must be JSON; false: JSON or INI
	// Words are the words after create, nil if there is a file. Messages then give a word
	// number, from 1, in place of a line.
	Words []string
	// Options replace the values in [globals].
	Options []Option
	// Devices are this host's devices that can be meant if neither the file nor an option names
	// one. If there is exactly one, it is used.
	Devices []string
}

// An Option is an option of adqsetup's command line that is a key of [globals].
type Option struct{ Key, Value string }

// adqsetup's limits: traffic classes of a device besides the default one, and queues in total.
const (
	maxSections = 15
	maxQueues   = 256
)

// defaultQueues is the number of queues that adqsetup leaves to all other traffic by default.
const defaultQueues = 2

// Convert converts a file of adqsetup's to a lanes file. name is used in messages only. dev, if
// not empty, replaces the file's device, like adqsetup's option --dev. The error is a
// config.Errors with every problem of the file.
func Convert(name, dev string, data []byte) (*Result, error) {
	in := Input{Name: name, Text: data}
	if dev != "" {
		in.Options = []Option{{"dev", dev}}
	}
	return Make(in)
}

// Make is Convert for every input of adqsetup's command line.
func Make(in Input) (*Result, error) {
	c := &converter{Reader: strictyaml.NewReader(in.Name), bad: map[string]bool{}, unit: "line"}
	var all []section
	if in.Words != nil {
		c.unit = "word"
		all = readWords(c.Reader, in.Words)
	} else {
		all = read(c.Reader, in.Text, in.JSON)
	}
	if len(c.Errors()) == 0 {
		c.file(in, all)
	}
	if errs := c.Errors(); len(errs) > 0 {
		for i := range errs {
			errs[i].Path = optionPath(in.Options, errs[i].Path)
		}
		return nil, errs
	}
	return &Result{Lanes: c.out.text.String(), Notes: c.notes, name: in.Name, from: c.out.from, options: in.Options},
		nil
}

// Locate returns the source position for a path and line of the lanes file. It is for errors
// that are found later, when the device is known.
func (r *Result) Locate(path string, line int) (name string, sourceLine int, sourcePath string) {
	w := writer{from: r.from}
	return r.name, w.source(line), optionPath(r.options, pathOfSource(path))
}

// optionPath returns the option that gave a key of [globals], or the key's path.
func optionPath(options []Option, path string) string {
	for _, o := range options {
		if path == globals+"."+o.Key {
			return "--" + o.Key
		}
	}
	return path
}

type converter struct {
	*strictyaml.Reader
	out   writer
	notes []Note
	// bad are the sections that could not be written completely, by their path in package
	// config. config's errors about them are ignored.
	bad  map[string]bool
	unit string // unit of source positions: "line" or "word"
}

func (c *converter) file(in Input, all []section) {
	global := section{name: globals, line: 1}
	var apps []section
	for _, s := range all {
		if s.name == globals {
			global = s
		} else {
			apps = append(apps, s)
		}
	}
	for _, o := range in.Options {
		global.set(o)
	}
	c.head(in)
	c.out.line(1, "version: 1")
	c.globals(&global, in, apps)
	c.out.line(1, "lanes:")
	c.limits(&global, apps)
	names := map[string]int{}
	for i := range apps {
		s := &apps[i]
		lane := laneName(s.name)
		if first := names[lane]; first > 0 {
			c.failf(lane, s.line, strictyaml.Join("", s.name),
				"becomes lane %s, as %s %d does; want another name", lane, c.unit, first)
			continue
		}
		names[lane] = s.line
		c.lane(lane, s, &global, pollers(apps))
	}
	c.check()
}

// head writes the origin of the lanes file.
func (c *converter) head(in Input) {
	if in.Words != nil {
		c.out.line(1, "# From niclane adqsetup create %s", inComment(strings.Join(in.Words, " ")))
		return
	}
	c.out.line(1, "# From %s, an adqsetup file, by niclane convert.", inComment(in.Name))
}

// check parses the lanes file with package config, and reports its errors at the source's
// positions.
func (c *converter) check() {
	_, err := config.Parse("lanes.yaml", []byte(c.out.text.String()))
	var errs config.Errors
	if err == nil || !errors.As(err, &errs) {
		return
	}
	for _, e := range errs {
		path := pathOfSource(e.Path)
		if c.bad[first(path)] || e.Path == "lanes" && len(c.bad) > 0 {
			continue
		}
		fail(c.Reader, c.out.source(e.Line), path, "%s", c.out.translate(e.Message, c.unit))
	}
}

// pathOfSource returns the source path for a path of the lanes file.
func pathOfSource(path string) string {
	path, _ = strings.CutPrefix(path, "lanes.")
	for _, k := range rateKeys {
		if section, ok := strings.CutSuffix(path, "."+k[1]); ok {
			return section + "." + k[0]
		}
	}
	return path
}

// first returns the first word of a path.
func first(path string) string {
	if at := strings.IndexAny(path, ".["); at >= 0 {
		return path[:at]
	}
	return path
}

// limits applies adqsetup's own limits. No file beyond them ever worked.
func (c *converter) limits(global *section, apps []section) {
	if len(apps) > maxSections {
		s := apps[maxSections]
		fail(c.Reader, s.line, strictyaml.Join("", s.name),
			"section %d of %d, want at most %d beside globals, as adqsetup does",
			maxSections+1, len(apps), maxSections)
	}
	total := defaultQueues
	if it, ok := global.get("queues"); ok {
		total, _ = number(it.text)
	}
	for i := range apps {
		it, ok := apps[i].get("queues")
		if !ok {
			continue
		}
		n, _ := number(it.text)
		if total += min(n, maxQueues+1); total > maxQueues {
			fail(c.Reader, it.line, strictyaml.Join(apps[i].name, "queues"),
				"found %d, which brings the queues to %d with the default ones, want at most %d, as adqsetup does", n,
				total, maxQueues)
			return
		}
	}
}

// failf reports a problem of a section. config's errors about the section are then ignored.
func (c *converter) failf(lane string, line int, path, format string, args ...any) {
	c.bad[lane] = true
	fail(c.Reader, line, path, format, args...)
}

// note writes a comment and adds it to the notes.
func (c *converter) note(indent int, line int, path, format string, args ...any) {
	n := Note{line, path, fmt.Sprintf(format, args...)}
	c.notes = append(c.notes, n)
	where := inComment(path)
	if line > 0 {
		where += fmt.Sprintf(" (%s %d)", c.unit, line)
	}
	c.out.line(line, "%s# %s: %s", strings.Repeat("  ", indent), where, inComment(n.Message))
}

// key writes a key with its value in YAML.
func (c *converter) key(indent int, it item, name, value string) {
	c.out.line(it.line, "%s%s: %s", strings.Repeat("  ", indent), name, value)
}

// inComment escapes a text so that it stays on its line.
func inComment(s string) string {
	quoted := fmt.Sprintf("%q", s)
	if quoted == `"`+s+`"` {
		return s
	}
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

var notInName = regexp.MustCompile(`[^a-z0-9_-]+`)

// laneName converts a section's name to a valid lane name.
func laneName(section string) string {
	return strings.Trim(notInName.ReplaceAllString(strings.ToLower(section), "-"), "-")
}

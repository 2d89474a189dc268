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

// A Note says where niclane does something else than adqsetup. The lanes file contains it as a
// comment.
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
	from    []int // for each line of Lanes, the line of the source from which it comes
	options []Option
}

// An Input is what adqsetup gets: a file, or the words after its command create, and the options
// before them.
type Input struct {
	Name string // name of the file, for messages only
	Text []byte
	JSON bool // true: the file must be JSON; false: JSON or INI
	// Words are the words after create; nil if there is a file. With Words, messages give the number
	// of a word, from 1, not a line.
	Words []string
	// Options replace the values in [globals].
	Options []Option
	// Devices are the devices of this host that the user may mean if neither the file nor an option
	// names one. If there is exactly one, Make uses it.
	Devices []string
}

// An Option is an option of adqsetup's command line that is a key of [globals].
type Option struct{ Key, Value string }

// adqsetup's limits: traffic classes of a device without the default class, and queues in total.
const (
	maxSections = 15
	maxQueues   = 256
)

// defaultQueues is the number of queues that adqsetup leaves to all other traffic by default.
const defaultQueues = 2

// Convert converts a file of adqsetup to a lanes file. name is used in messages only. dev, if not
// empty, replaces the file's device, like adqsetup's option --dev. The error is a config.Errors
// with every problem of the file.
func Convert(name, dev string, data []byte) (*Result, error) {
	in := Input{Name: name, Text: data}
	if dev != "" {
		in.Options = []Option{{"dev", dev}}
	}
	return Make(in)
}

// Make converts any input that adqsetup's command line accepts. The error is as in Convert.
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

// Locate returns the source position for a path and line of the lanes file. Callers use it for
// errors that are found after Convert, when the device is known.
func (r *Result) Locate(path string, line int) (name string, sourceLine int, sourcePath string) {
	w := writer{from: r.from}
	return r.name, w.source(line), optionPath(r.options, pathOfSource(path))
}

// optionPath returns the name of the option that gave a value for path, a key of [globals]. Without
// such an option it returns path.
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
	// bad lists the sections that could not be written completely, by their path in package config.
	// Errors that config reports about them are ignored.
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

// head writes comments that say where the lanes file comes from.
func (c *converter) head(in Input) {
	if in.Words != nil {
		c.out.line(1, "# From niclane adqsetup create %s", inComment(strings.Join(in.Words, " ")))
		return
	}
	c.out.line(1, "# From %s, an adqsetup file, by niclane convert.", inComment(in.Name))
}

// check parses the lanes file with package config. It reports config's errors with positions in the
// source.
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

// pathOfSource converts a path in the lanes file to the path in the source.
func pathOfSource(path string) string {
	path, _ = strings.CutPrefix(path, "lanes.")
	for _, k := range rateKeys {
		if section, ok := strings.CutSuffix(path, "."+k[1]); ok {
			return section + "." + k[0]
		}
	}
	return path
}

// first returns the part of a path before the first "." or "[".
func first(path string) string {
	if at := strings.IndexAny(path, ".["); at >= 0 {
		return path[:at]
	}
	return path
}

// limits refuses files that exceed adqsetup's own limits. adqsetup never accepted such files.
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

// failf reports a problem in a section. Errors that config reports about the section are then
// ignored.
func (c *converter) failf(lane string, line int, path, format string, args ...any) {
	c.bad[lane] = true
	fail(c.Reader, line, path, format, args...)
}

// note writes a Note as a comment into the lanes file and adds it to the notes.
func (c *converter) note(indent int, line int, path, format string, args ...any) {
	n := Note{line, path, fmt.Sprintf(format, args...)}
	c.notes = append(c.notes, n)
	where := inComment(path)
	if line > 0 {
		where += fmt.Sprintf(" (%s %d)", c.unit, line)
	}
	c.out.line(line, "%s# %s: %s", strings.Repeat("  ", indent), where, inComment(n.Message))
}

// key writes a key and its value as a line of YAML.
func (c *converter) key(indent int, it item, name, value string) {
	c.out.line(it.line, "%s%s: %s", strings.Repeat("  ", indent), name, value)
}

// inComment escapes a text so that a comment with it stays on one line.
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

// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/must"
)

var update = flag.Bool("update", false, "write the generated parts of the manual pages")

// docs is the directory of the documents, relative to the directory of a program.
const docs = "../../docs/"

// A kind is a kind of manual page. It says which note is the second paragraph, and which sections
// follow in which order.
type kind struct {
	note     string
	sections []string
}

var (
	ofCommand = kind{
		"<!-- make generate writes NAME, SYNOPSIS, OPTIONS and the first block of EXAMPLES from the command. -->",
		[]string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"},
	}
	ofProgram = kind{
		"<!-- make generate writes NAME, SYNOPSIS and OPTIONS from the commands. -->",
		[]string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "SEE ALSO"},
	}
)

// A Manual describes the manual pages of a program: one page in docs about the program, and one
// page in docs/man about each command.
type Manual struct {
	Program string
	Root    *cobra.Command
	Limit   int                      // largest number of words of the program's page
	Typed   func(name string) string // returns what users type for a command
	Page    func(name string) string // returns a command's page, relative to docs; "": no page
}

// Test compares the generated parts of the pages with the commands. With -update, it writes these
// parts instead. It is an error if a command has no page, or if a page has no command.
func (m *Manual) Test(t *testing.T) {
	t.Helper()
	m.compare(t, m.Program+".8.md", ofProgram, map[string]string{
		"NAME":     m.Program + " - " + lower(m.Root.Short),
		"SYNOPSIS": "    " + m.Program + " [OPTION]... COMMAND [ARGUMENT]...\n\n" + m.commands(),
		"OPTIONS":  "Every command takes these options:\n\n" + items(flagsOf(m.Root.PersistentFlags()), m.Root.Use),
	})
	if text, err := os.ReadFile(docs + m.Program + ".8.md"); err != nil || len(strings.Fields(string(text))) > m.Limit {
		t.Errorf("%s(8): %v, %d words, want an overview of at most %d", m.Program, err,
			len(strings.Fields(string(text))), m.Limit)
	}
	own := map[string]bool{}
	for _, c := range m.Root.Commands() {
		page := m.Page(c.Name())
		if name := "man/" + m.Program + "-" + c.Name() + ".8.md"; page != name {
			continue // the page is another program's, or there is none
		}
		own[page] = true
		m.compare(t, page, ofCommand, map[string]string{
			"NAME":     strings.TrimSuffix(filepath.Base(page), ".8.md") + " - " + lower(c.Short),
			"SYNOPSIS": m.synopsis(c),
			"OPTIONS":  m.options(c),
			"EXAMPLES": "```sh\n" + examplesOf(c) + "```",
		})
	}
	pages, err := filepath.Glob(docs + "man/*")
	must.Do(t, err)
	for _, p := range pages {
		page := "man/" + filepath.Base(p)
		bench := strings.HasPrefix(page, "man/"+program.Bench+"-")
		if bench == (m.Program == program.Bench) && !own[page] {
			t.Errorf("docs/%s is the page of no command of %s", page, m.Program)
		}
	}
}

// compare checks a page. Its title, note and sections must be those of k, and each section in want
// must have the generated text. With -update, compare writes the page instead.
func (m *Manual) compare(t *testing.T, page string, k kind, want map[string]string) {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(page), ".8.md")
	text, err := os.ReadFile(docs + page)
	if errors.Is(err, fs.ErrNotExist) && *update {
		text, err = nil, nil
	}
	if err != nil {
		t.Errorf("%s has no manual page: %v; run make generate and write its DESCRIPTION", name, err)
		return
	}
	old := map[string]string{}
	var order []string
	for _, s := range strings.Split("\n"+string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(s, "\n")
		old[title] = strings.Trim(body, "\n")
		order = append(order, title)
	}
	for _, s := range order {
		if !slices.Contains(k.sections, s) {
			t.Errorf("%s: section %s, want only %s", page, s, strings.Join(k.sections, ", "))
			return // -update would delete this section
		}
	}
	if *update {
		var b strings.Builder
		fmt.Fprintf(&b, "# %s(8)\n\n%s\n", name, k.note)
		for _, s := range k.sections {
			body := old[s]
			if made, ok := want[s]; ok {
				body = made + handmade(s, body)
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", s, body)
		}
		must.Do(t, os.WriteFile(docs+page, []byte(b.String()), 0o644))
		return
	}
	if diff := gocmp.Diff(k.sections, order); diff != "" {
		t.Errorf("%s: sections (-want +got):\n%s", page, diff)
	}
	if !strings.HasPrefix(string(text), "# "+name+"(8)\n\n"+k.note+"\n") {
		t.Errorf("%s does not begin with its title and %q", page, k.note)
	}
	for _, s := range k.sections {
		made, ok := want[s]
		switch got := strings.TrimSuffix(old[s], handmade(s, old[s])); {
		case ok && got != made:
			t.Errorf("%s: %s: run make generate (-want +got):\n%s", page, s, gocmp.Diff(made, got))
		case old[s] == "":
			t.Errorf("%s: %s is empty", page, s)
		}
	}
}

// handmade returns the part of a section that a person wrote, after the generated text. In
// EXAMPLES, this is everything after the first code block. In other sections with generated text,
// it is "".
func handmade(section, body string) string {
	if i := strings.Index(body, "\n```\n"); section == "EXAMPLES" && i >= 0 {
		return body[i+len("\n```"):]
	}
	return ""
}

// commands returns the table of a program's commands. It has one row for each group of commands. If
// the program has no groups, it has one row for each command.
func (m *Manual) commands() string {
	link := func(c *cobra.Command, text string) string { return "[" + text + "](" + m.Page(c.Name()) + ")" }
	var b strings.Builder
	if groups := m.Root.Groups(); len(groups) > 0 {
		b.WriteString("| to | commands |\n| --- | --- |\n")
		for _, g := range groups {
			var links []string
			for _, c := range m.Root.Commands() {
				if c.GroupID == g.ID {
					links = append(links, link(c, c.Name()))
				}
			}
			fmt.Fprintf(&b, "| %s | %s |\n", lower(g.ID), strings.Join(links, ", "))
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	b.WriteString("| command | to |\n| --- | --- |\n")
	for _, c := range m.Root.Commands() {
		if m.Page(c.Name()) != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", link(c, m.Typed(c.Name())), lower(c.Short))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// typed returns what users type for a command or a subcommand, such as "niclane lab up".
func (m *Manual) typed(c *cobra.Command) string {
	if p := c.Parent(); p != m.Root {
		return m.typed(p) + " " + c.Name()
	}
	return m.Typed(c.Name())
}

// synopsis returns the SYNOPSIS of a command: a line for each form in its Use, then the same for
// its subcommands.
func (m *Manual) synopsis(c *cobra.Command) string {
	var lines []string
	subs := c.Commands()
	for _, form := range strings.Split(c.Use, " | "+c.Name()+" ") {
		arguments := strings.TrimPrefix(strings.TrimPrefix(form, c.Name()), " ")
		if len(subs) > 0 && strings.HasPrefix(arguments, subs[0].Name()+"|") {
			continue // users can run only its subcommands
		}
		lines = append(lines, wrap(strings.Join(slices.DeleteFunc([]string{m.typed(c), m.brackets(c), arguments},
			func(s string) bool { return s == "" }), " ")))
	}
	for _, sub := range subs {
		lines = append(lines, m.synopsis(sub))
	}
	return strings.Join(lines, "\n")
}

// brackets returns the options that a command's Use does not name, each in []. If there are many,
// it returns [OPTION]... instead.
func (m *Manual) brackets(c *cobra.Command) string {
	const many = 6
	var out []string
	for _, f := range m.own(c) {
		value, _ := valueOf(f, c.Use)
		switch {
		case regexp.MustCompile(`--` + f.Name + `\b`).MatchString(c.Use):
		case f.Value.Type() == "stringArray":
			out = append(out, "[--"+f.Name+" "+value+"]...")
		default:
			out = append(out, "["+strings.TrimSpace("--"+f.Name+" "+value)+"]")
		}
	}
	switch {
	case strings.Contains(c.Use, "[OPTION]"):
		return ""
	case len(out) >= many:
		return "[OPTION]..."
	}
	return strings.Join(out, " ")
}

// options returns the text of the section OPTIONS: the options of a command and of its subcommands.
func (m *Manual) options(c *cobra.Command) string {
	var parts []string
	if list := flagsOf(c.LocalFlags()); len(list) > 0 {
		parts = append(parts, items(list, c.Use))
	}
	for _, sub := range c.Commands() {
		if list := flagsOf(sub.LocalFlags()); len(list) > 0 {
			parts = append(parts, "Of **"+sub.Name()+"**:\n\n"+items(list, sub.Use))
		}
	}
	var common []string
	for _, f := range flagsOf(m.Root.PersistentFlags()) {
		if c.LocalFlags().Lookup(f.Name) == nil {
			common = append(common, "`--"+f.Name+"`")
		}
	}
	last := len(common) - 1
	parts = append(parts, fmt.Sprintf("[%s(8)](../%[1]s.8.md#options) describes %s and %s.", m.Program,
		strings.Join(common[:last], ", "), common[last]))
	return strings.Join(parts, "\n\n")
}

// own returns the options of a command, without those that every command has.
func (m *Manual) own(c *cobra.Command) []*pflag.Flag {
	all := slices.Concat(flagsOf(c.LocalFlags()), flagsOf(c.InheritedFlags()))
	return slices.DeleteFunc(all, func(f *pflag.Flag) bool { return m.Root.PersistentFlags().Lookup(f.Name) == f })
}

func flagsOf(set *pflag.FlagSet) (list []*pflag.Flag) {
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			list = append(list, f)
		}
	})
	return list
}

// items returns the options as a definition list, in the syntax of go-md2man.
func items(list []*pflag.Flag, use string) string {
	var out []string
	for _, f := range list {
		value, usage := valueOf(f, use)
		head := "--" + f.Name
		if f.Shorthand != "" {
			head = "-" + f.Shorthand + ", " + head
		}
		switch {
		case value != "" && f.NoOptDefVal != "":
			head += "[=" + value + "]"
		case value != "":
			head += " " + value
		}
		if !slices.Contains([]string{"", "false", "0", "[]"}, f.DefValue) {
			usage += " (default `" + strings.Trim(f.DefValue, "[]") + "`)"
		}
		out = append(out, "`"+head+"`\n: "+usage)
	}
	return strings.Join(out, "\n\n")
}

// types are the words for values in manual pages, by pflag's name of the type.
var types = map[string]string{
	"string": "VALUE", "stringArray": "VALUE", "strings": "VALUE,...", "int": "N", "uint": "N", "float": "N",
	"ints": "N,...", "uints": "N,...", "duration": "TIME",
}

// valueOf returns the word for an option's value and the option's usage text. The word is the one
// in the command's Use. If Use has none, it is the one in back quotes in the usage text. If there
// is none, it depends on the value's type. For an option without a value, it is "".
func valueOf(f *pflag.Flag, use string) (value, usage string) {
	kind, usage := pflag.UnquoteUsage(f)
	inUse := regexp.MustCompile(`--` + f.Name + ` ((?:\[[^]]*\]|[^])\s])+)`)
	if m := inUse.FindStringSubmatch(use); m != nil && kind != "" {
		return m[1], usage
	}
	if regexp.MustCompile(`^[a-z]+$`).MatchString(kind) && f.Value.Type() != "bool" {
		return cmp.Or(types[kind], strings.ToUpper(kind)), usage
	}
	return cmp.Or(types[kind], kind), usage
}

// examplesOf returns the examples of a command and of its subcommands, without repeats.
func examplesOf(c *cobra.Command) string {
	var lines []string
	for _, c := range append([]*cobra.Command{c}, c.Commands()...) {
		for line := range strings.Lines(c.Example + "\n") {
			if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// wrap indents a line as code and breaks it at 76 characters, only before an argument.
func wrap(line string) string {
	const width = 76
	var out strings.Builder
	column, depth := 0, 0
	argument := ""
	words := strings.Fields(line)
	for i, w := range words {
		argument = strings.TrimSpace(argument + " " + w)
		depth += strings.Count(w, "[") + strings.Count(w, "(") - strings.Count(w, "]") - strings.Count(w, ")")
		if depth > 0 || strings.HasPrefix(w, "--") && i+1 < len(words) && !strings.ContainsAny(words[i+1][:1], "-[(") {
			continue
		}
		switch {
		case column == 0:
			out.WriteString("    ")
			column = 4
		case column+1+len(argument) > width:
			out.WriteString("\n        ")
			column = 8
		default:
			out.WriteString(" ")
			column++
		}
		out.WriteString(argument)
		column += len(argument)
		argument = ""
	}
	return out.String()
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }

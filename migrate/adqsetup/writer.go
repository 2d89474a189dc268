// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// A writer writes the lanes file, and remembers for each line which one of the
// source it is from, so that what package config says about the one can be said
// about the other.
type writer struct {
	text strings.Builder
	from []int
}

func (w *writer) line(from int, format string, args ...any) {
	fmt.Fprintf(&w.text, format+"\n", args...)
	w.from = append(w.from, from)
}

// source is the line of the source that a line of the lanes file is from.
func (w *writer) source(line int) int {
	if line < 1 || line > len(w.from) {
		return 1
	}
	return w.from[line-1]
}

var lineNumber = regexp.MustCompile(`\bline [0-9]+\b`)

// translate puts the source's positions, which unit counts, into a message about
// the lanes file.
func (w *writer) translate(message, unit string) string {
	return lineNumber.ReplaceAllStringFunc(message, func(s string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(s, "line "))
		return unit + " " + strconv.Itoa(w.source(n))
	})
}

var (
	plainText = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z./_-]*$`)
	word      = regexp.MustCompile(`^[0-9]+(-[0-9]+|mbit)?$|^(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?:/[0-9]{1,2})?$` +
		`|^[A-Za-z][0-9A-Za-z./_-]*$`)
	// notText are words that YAML takes for something else than text.
	notText = regexp.MustCompile(`^(?i:true|false|null|yes|no|on|off|y|n|inf|nan)$`)
)

// scalar is a value as YAML has it, in quotes where they are needed.
func scalar(text string) string {
	if strictyaml.IsDecimal(text) || plainText.MatchString(text) && word.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}

// text is a scalar that is text, whatever it looks like.
func text(s string) string {
	if plainText.MatchString(s) && word.MatchString(s) && !notText.MatchString(s) && (s[0] < '0' || s[0] > '9') {
		return s
	}
	return strconv.Quote(s)
}

// flow is a list as YAML has it on one line, or its only item.
func flow(items []string) string {
	out := make([]string, len(items))
	for i, s := range items {
		out[i] = scalar(s)
	}
	if len(out) == 1 {
		return out[0]
	}
	return "[" + strings.Join(out, ", ") + "]"
}

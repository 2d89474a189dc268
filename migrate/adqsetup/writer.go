// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// A writer writes the lanes file. For each line it stores the line of the source. So errors of
// package config can be reported with positions in the source.
type writer struct {
	text strings.Builder
	from []int
}

func (w *writer) line(from int, format string, args ...any) {
	fmt.Fprintf(&w.text, format+"\n", args...)
	w.from = append(w.from, from)
}

// source returns the source line for a line of the lanes file.
func (w *writer) source(line int) int {
	if line < 1 || line > len(w.from) {
		return 1
	}
	return w.from[line-1]
}

var lineNumber = regexp.MustCompile(`\bline [0-9]+\b`)

// translate replaces the line numbers in a message about the lanes file by positions in the source.
// unit is "line" or "word".
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
	// notText matches words that YAML does not read as text, such as on.
	notText = regexp.MustCompile(`^(?i:true|false|null|yes|no|on|off|y|n|inf|nan)$`)
)

// scalar formats a value in YAML, in quotes if needed.
func scalar(text string) string {
	if strictyaml.IsDecimal(text) || plainText.MatchString(text) && word.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}

// text formats a value that YAML must read as text.
func text(s string) string {
	if plainText.MatchString(s) && word.MatchString(s) && !notText.MatchString(s) && (s[0] < '0' || s[0] > '9') {
		return s
	}
	return strconv.Quote(s)
}

// flow formats a list as YAML on one line. If the list has one item, it formats only the item.
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

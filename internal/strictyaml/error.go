// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// An Error is one problem in a file. Line and Column count from 1; Column counts characters.
// Path is the place in the file, "lanes.redis.queues"; it is empty for a problem of the whole
// text.
type Error struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// Error implements error: "lanes.yaml:14: lanes.redis.queues: found ...".
func (e Error) Error() string {
	s := e.File + ":" + strconv.Itoa(e.Line) + ": "
	if e.Path != "" {
		s += e.Path + ": "
	}
	return s + e.Message
}

// Errors are all problems of one file, ordered by position.
type Errors []Error

// Error implements error: one line for each problem.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the problems ordered by position, without repetitions.
func (es Errors) sorted() Errors {
	es = slices.Clone(es) // Compact clears what it drops
	slices.SortStableFunc(es, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(es)
}

// SPDX-License-Identifier: Apache-2.0

package plan

import "strings"

// An Error is one thing in the lanes file that the device cannot do. Path is the config path that
// asked for it; the caller adds file and line.
type Error struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Error implements error.
func (e Error) Error() string { return e.Path + ": " + e.Message }

// Errors are all errors of one planning run, in the order found.
type Errors []Error

// Error implements error, with one line per error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// A File is a lanes file that was read and checked.
type File struct {
	// Name is by what its lanes are journalled: an absolute path (Name).
	Name string
	Text []byte
	*intent.Intent
	// Locate says where a person has written what the file has at a path. Without it
	// plan.Errors have paths alone.
	Locate func(path string) (name string, line int, at string)
}

// Parse reads a lanes file's text. Its errors have lines (package config).
func Parse(name string, text []byte) (*File, error) {
	c, err := config.ParseFile(name, text)
	if err != nil {
		return nil, err
	}
	return &File{Name: name, Text: text, Intent: c.Intent, Locate: func(path string) (string, int, string) {
		at, line := c.Locate(path)
		return at, line, path
	}}, nil
}

// Devices are those that the file names: its bond, or its devices.
func (f *File) Devices() []string {
	if f.Group.Bond != "" {
		return []string{f.Group.Bond}
	}
	return slices.Clone(f.Group.Devices)
}

// groups are the control groups that the file names.
func (f *File) groups() []string { return Groups(f.Intent) }

// Name is how a lanes file is journalled: by absolute path, symbolic links resolved,
// so that one file is one however it was named.
func Name(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// located adds file and line to the planner's errors.
func (f *File) located(err error) error {
	var es plan.Errors
	if f.Locate == nil || !errors.As(err, &es) {
		return err
	}
	lines := make([]string, len(es))
	for i, e := range es {
		name, line, at := f.Locate(e.Path)
		e.Path = at
		lines[i] = fmt.Sprintf("%s:%d: %s", name, line, e)
	}
	return &locatedErrors{strings.Join(lines, "\n"), es}
}

// locatedErrors are the planner's errors with files and lines.
type locatedErrors struct {
	text string
	es   plan.Errors
}

func (e *locatedErrors) Error() string { return e.text }

func (e *locatedErrors) Unwrap() error { return e.es }
